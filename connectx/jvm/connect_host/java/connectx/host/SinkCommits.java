package connectx.host;

import org.apache.kafka.clients.consumer.ConsumerInterceptor;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;

import java.util.Map;
import java.util.TreeMap;

/** Interceptor of a sink task's consumer: reports each commit that Kafka has confirmed. */
public final class SinkCommits implements ConsumerInterceptor<byte[], byte[]> {
    private TaskRun run;
    private Map<TopicPartition, OffsetAndMetadata> last = Map.of();

    @Override
    public void configure(Map<String, ?> configs) {
        run = TaskRun.of(String.valueOf(configs.get(Tap.RUN)));
    }

    @Override
    public ConsumerRecords<byte[], byte[]> onConsume(ConsumerRecords<byte[], byte[]> consumed) {
        if (run != null) {
            consumed.partitions().forEach(where -> run.counts().consumed(where, consumed.records(where)));
        }
        return consumed;
    }

    @Override
    public void onCommit(Map<TopicPartition, OffsetAndMetadata> offsets) {
        if (run == null || offsets.isEmpty() || offsets.equals(last)) {
            return;
        }
        last = Map.copyOf(offsets);
        Map<String, Long> ends = new TreeMap<>();
        long records = 0;
        for (Map.Entry<TopicPartition, OffsetAndMetadata> each : offsets.entrySet()) {
            long end = each.getValue().offset();
            ends.put(each.getKey().toString(), end);
            records += run.counts().committed(each.getKey(), end);
        }
        run.committed(records, "ends", ends);
    }

    @Override
    public void close() {
    }
}
