package connectx.host;

import org.apache.kafka.connect.source.SourceRecord;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.HashMap;
import java.util.IdentityHashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/**
 * What a source task has polled, and what of it each commit covers.
 *
 * As Worker does, it takes of each source partition the records up to the first that Kafka has not acknowledged. With
 * exactly-once these are all records of the transaction. Without it, records that are acknowledged while a commit is
 * under way count to that commit.
 */
final class SourceLedger {
    private final Map<Map<String, ?>, Deque<Entry>> open = new LinkedHashMap<>();
    private final Map<SourceRecord, Entry> byRecord = new IdentityHashMap<>();
    /** Where the next commit of each source partition begins: the previous commit, or the offset given to the task. */
    private final Map<Map<String, ?>, Map<String, ?>> from = new HashMap<>();

    synchronized void began(Map<String, ?> partition, Map<String, ?> offset) {
        from.putIfAbsent(partition, offset);
    }

    synchronized void polled(List<SourceRecord> records) {
        for (SourceRecord record : records) {
            if (record != null) {
                Entry entry = new Entry(record.sourceOffset());
                byRecord.put(record, entry);
                open.computeIfAbsent(record.sourcePartition(), key -> new ArrayDeque<>()).add(entry);
            }
        }
    }

    /** A record is in Kafka, or (`sent` is false) was dropped by a transformation or because of an error. */
    synchronized void done(SourceRecord record, boolean sent) {
        Entry entry = byRecord.remove(record);
        if (entry != null) {
            entry.done = true;
            entry.sent = sent;
        }
    }

    /** What is committed now; nothing if that is no record. */
    synchronized Optional<Commit> commit() {
        long records = 0;
        List<Map<String, Object>> ranges = new ArrayList<>();
        for (var each : open.entrySet()) {
            Entry last = null;
            while (!each.getValue().isEmpty() && each.getValue().getFirst().done) {
                last = each.getValue().removeFirst();
                records += last.sent ? 1 : 0;
            }
            if (last != null && each.getKey() != null && last.offset != null) {
                ranges.add(range(each.getKey(), last.offset));
            }
        }
        open.values().removeIf(Deque::isEmpty);
        return records == 0 && ranges.isEmpty() ? Optional.empty()
            : Optional.of(new Commit(records, ranges));
    }

    private Map<String, Object> range(Map<String, ?> partition, Map<String, ?> offset) {
        Map<String, Object> range = new LinkedHashMap<>();
        range.put("partition", partition);
        if (from.containsKey(partition)) {
            range.put("from", from.get(partition));
        }
        range.put("offset", offset);
        from.put(partition, offset);
        return range;
    }

    record Commit(long records, List<Map<String, Object>> ranges) {
    }

    private static final class Entry {
        final Map<String, ?> offset;
        boolean done;
        boolean sent;

        Entry(Map<String, ?> offset) {
            this.offset = offset;
        }
    }
}
