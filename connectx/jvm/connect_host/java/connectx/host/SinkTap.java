package connectx.host;

import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.connect.runtime.TaskConfig;
import org.apache.kafka.connect.sink.SinkRecord;
import org.apache.kafka.connect.sink.SinkTask;

import java.util.Collection;
import java.util.Map;

/** Stands before a connector's sink task and reports its partitions; {@link SinkCommits} reports its commits. */
public final class SinkTap extends SinkTask {
    private SinkTask task;
    private TaskRun run;

    @Override
    public String version() {
        return task == null ? null : task.version();
    }

    @Override
    public void start(Map<String, String> given) {
        run = TaskRun.of(given.get(Tap.RUN));
        Map<String, String> own = Tap.own(given);
        task = Tap.make(own.get(TaskConfig.TASK_CLASS_CONFIG), SinkTask.class);
        task.initialize(context);
        task.start(own);
    }

    @Override
    public void open(Collection<TopicPartition> partitions) {
        run.report("PartitionsAssigned", "partitions", names(partitions));
        task.open(partitions);
    }

    @Override
    public void put(Collection<SinkRecord> records) {
        task.put(records);
    }

    @Override
    public void flush(Map<TopicPartition, OffsetAndMetadata> offsets) {
        task.flush(offsets);
    }

    @Override
    public Map<TopicPartition, OffsetAndMetadata> preCommit(Map<TopicPartition, OffsetAndMetadata> offsets) {
        return task.preCommit(offsets);
    }

    @Override
    public void close(Collection<TopicPartition> partitions) {
        try {
            task.close(partitions);
        } finally {
            run.counts().drop(partitions);
            run.report("PartitionsRevoked", "partitions", names(partitions));
        }
    }

    @Override
    public void stop() {
        if (task != null) {
            task.stop();
        }
    }

    private static Object names(Collection<TopicPartition> partitions) {
        return partitions.stream().map(TopicPartition::toString).sorted().toList();
    }
}
