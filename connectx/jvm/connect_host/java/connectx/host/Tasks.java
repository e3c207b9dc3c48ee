package connectx.host;

import com.fasterxml.jackson.databind.JsonNode;
import org.apache.kafka.connect.runtime.TargetState;
import org.apache.kafka.connect.runtime.TaskConfig;
import org.apache.kafka.connect.runtime.Worker;
import org.apache.kafka.connect.runtime.isolation.Plugins;
import org.apache.kafka.connect.storage.ClusterConfigState;
import org.apache.kafka.connect.util.ConnectorTaskId;

import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;

/** Task instances. Starts them in the steps of KIP-618, each when it is ordered. */
final class Tasks {
    private final Worker worker;
    private final Plugins plugins;
    private final Link link;
    private final Turns turns;
    private final Map<ConnectorTaskId, TaskRun> runs = new ConcurrentHashMap<>();

    Tasks(Worker worker, Plugins plugins, Link link, Turns turns) {
        this.worker = worker;
        this.plugins = plugins;
        this.link = link;
        this.turns = turns;
    }

    static ConnectorTaskId id(JsonNode order) {
        String text = order.get("task").asText();
        int dash = text.lastIndexOf('-');
        return new ConnectorTaskId(text.substring(0, dash), Integer.parseInt(text.substring(dash + 1)));
    }

    /** The instance that an order is for; one that nothing depends on if it has ended. */
    TaskRun run(JsonNode order) {
        ConnectorTaskId id = id(order);
        int instance = order.get("instance").asInt();
        TaskRun run = runs.get(id);
        return run != null && run.instance == instance ? run : new TaskRun(id, instance, link, ended -> { });
    }

    void prepare(JsonNode order) {
        ConnectorTaskId id = id(order);
        TaskRun run = new TaskRun(id, order.get("instance").asInt(), link, this::onEnd);
        run.setPaused("PAUSED".equals(order.get("target_state").asText()));
        forget(id);
        runs.put(id, run);
        Map<String, String> connector = Link.texts(order.get("connector_config"));
        Map<String, String> own = Link.texts(order.get("task_config"));
        boolean isSink = order.get("sink").asBoolean();
        Map<String, String> task = new HashMap<>(own);
        task.put(Tap.TASK_CLASS, own.get(TaskConfig.TASK_CLASS_CONFIG));
        task.put(Tap.RUN, run.token());
        task.put(TaskConfig.TASK_CLASS_CONFIG, (isSink ? SinkTap.class : SourceTap.class).getName());
        if (isSink) {
            String interceptors = "consumer.override.interceptor.classes";
            String given = connector.getOrDefault(interceptors, (String) worker.config().originals()
                .get("consumer.interceptor.classes"));
            String commits = SinkCommits.class.getName();
            connector.put(interceptors, given == null || given.isBlank() ? commits : given + "," + commits);
            connector.put("consumer.override." + Tap.RUN, run.token());
        }
        // The worker reads the number of tasks and the configuration of this task from it, and nothing else.
        ClusterConfigState state = new ClusterConfigState(0, null,
            Map.of(id.connector(), order.get("task_count").asInt()), Map.of(id.connector(), connector),
            Map.of(id.connector(), TargetState.STARTED), Map.of(id, own),
            Map.of(), Map.of(), Map.of(), Set.of(), Set.of());
        String version = plugins.newConnector(connector.get("connector.class")).version();
        if (order.get("exactly_once").asBoolean()) {
            worker.startExactlyOnceSourceTask(id, state, connector, task, run, TargetState.STARTED, () -> {
                run.prepared(version);
                run.awaitInitialization();
            }, () -> {
                run.producerReady();
                run.awaitBegin();
            });
            return;
        }
        run.onBegin(target -> {
            if (isSink) {
                worker.startSinkTask(id, state, connector, task, run, target);
            } else {
                worker.startSourceTask(id, state, connector, task, run, target);
            }
        });
        run.prepared(version);
    }

    /** Waits for `task.shutdown.graceful.timeout.ms`; then Worker cancels the task, and its thread may go on. */
    void stop(TaskRun run) {
        if (runs.get(run.id) == run) {
            forget(run.id);
        }
        run.stopped();
    }

    private void onEnd(TaskRun run) {
        turns.after(run.id.toString(), () -> {
            if (runs.get(run.id) == run) {
                forget(run.id);
            }
        });
    }

    /** A task that has failed remains in Worker until it is stopped. */
    private void forget(ConnectorTaskId id) {
        TaskRun run = runs.remove(id);
        if (worker.taskIds().contains(id)) {
            worker.stopAndAwaitTask(id);
        }
        if (run != null) {
            run.forget();
        }
    }
}
