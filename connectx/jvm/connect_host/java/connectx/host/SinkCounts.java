package connectx.host;

import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.TopicPartition;

import java.util.ArrayDeque;
import java.util.Collection;
import java.util.Deque;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** Offsets that a sink task was given and that no commit covers yet: a consumer reads ahead of commits. */
final class SinkCounts {
    private final Map<TopicPartition, Deque<long[]>> open = new HashMap<>();

    synchronized void consumed(TopicPartition where, List<ConsumerRecord<byte[], byte[]>> batch) {
        Deque<long[]> batches = open.computeIfAbsent(where, key -> new ArrayDeque<>());
        long[] offsets = batch.stream().mapToLong(ConsumerRecord::offset).toArray();
        if (!batches.isEmpty() && offsets[0] <= last(batches.getLast())) {
            batches.clear();  // the task has rewound its consumer
        }
        batches.add(offsets);
    }

    /** Number of records below a committed offset that no earlier commit has covered. */
    synchronized long committed(TopicPartition where, long end) {
        Deque<long[]> batches = open.getOrDefault(where, new ArrayDeque<>());
        long records = 0;
        while (!batches.isEmpty() && batches.getFirst()[0] < end) {
            long[] batch = batches.removeFirst();
            int covered = 0;
            while (covered < batch.length && batch[covered] < end) {
                covered++;
            }
            records += covered;
            if (covered < batch.length) {
                batches.addFirst(java.util.Arrays.copyOfRange(batch, covered, batch.length));
                break;
            }
        }
        return records;
    }

    synchronized void drop(Collection<TopicPartition> partitions) {
        open.keySet().removeAll(partitions);
    }

    private static long last(long[] offsets) {
        return offsets[offsets.length - 1];
    }
}
