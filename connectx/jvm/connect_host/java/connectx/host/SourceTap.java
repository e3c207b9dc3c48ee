package connectx.host;

import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.metrics.PluginMetrics;
import org.apache.kafka.connect.runtime.TaskConfig;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.source.SourceTask;
import org.apache.kafka.connect.source.SourceTaskContext;
import org.apache.kafka.connect.source.TransactionContext;
import org.apache.kafka.connect.storage.OffsetStorageReader;

import java.util.Collection;
import java.util.List;
import java.util.Map;

/** Stands before a connector's source task and reports each commit. */
public final class SourceTap extends SourceTask {
    private final SourceLedger ledger = new SourceLedger();
    private SourceTask task;
    private TaskRun run;

    @Override
    public String version() {
        return task == null ? null : task.version();
    }

    @Override
    public void start(Map<String, String> given) {
        run = TaskRun.of(given.get(Tap.RUN));
        Map<String, String> own = Tap.own(given);
        task = Tap.make(own.get(TaskConfig.TASK_CLASS_CONFIG), SourceTask.class);
        task.initialize(new Context(context));
        task.start(own);
    }

    @Override
    public List<SourceRecord> poll() throws InterruptedException {
        List<SourceRecord> records = task.poll();
        if (records != null) {
            ledger.polled(records);
        }
        return records;
    }

    @Override
    public void commitRecord(SourceRecord record, RecordMetadata metadata) throws InterruptedException {
        ledger.done(record, metadata != null);
        task.commitRecord(record, metadata);
    }

    @Override
    public void commit() throws InterruptedException {
        ledger.commit().ifPresent(commit -> run.committed(commit.records(), "offsets", commit.ranges()));
        task.commit();
    }

    @Override
    public void stop() {
        if (task != null) {
            task.stop();
        }
    }

    /** A task's context that notes which offsets the task was given. */
    private final class Context implements SourceTaskContext, OffsetStorageReader {
        private final SourceTaskContext context;

        Context(SourceTaskContext context) {
            this.context = context;
        }

        @Override
        public Map<String, String> configs() {
            return context.configs();
        }

        @Override
        public OffsetStorageReader offsetStorageReader() {
            return this;
        }

        @Override
        public TransactionContext transactionContext() {
            return context.transactionContext();
        }

        @Override
        public PluginMetrics pluginMetrics() {
            return context.pluginMetrics();
        }

        @Override
        public <T> Map<String, Object> offset(Map<String, T> partition) {
            Map<String, Object> found = context.offsetStorageReader().offset(partition);
            ledger.began(partition, found);
            return found;
        }

        @Override
        public <T> Map<Map<String, T>, Map<String, Object>> offsets(Collection<Map<String, T>> partitions) {
            Map<Map<String, T>, Map<String, Object>> found = context.offsetStorageReader().offsets(partitions);
            partitions.forEach(partition -> ledger.began(partition, found.get(partition)));
            return found;
        }
    }
}
