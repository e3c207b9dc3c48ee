package connectx.host;

import org.apache.kafka.connect.connector.Task;
import org.apache.kafka.connect.errors.ConnectException;
import org.apache.kafka.connect.runtime.TaskConfig;

import java.util.HashMap;
import java.util.Map;

/** What the taps share. A tap is the task that Worker runs; it hands everything to the connector's own task. */
final class Tap {
    static final String TASK_CLASS = "connectx.task.class";
    static final String RUN = "connectx.run";

    private Tap() {
    }

    /** The configuration that the connector has made for its task. */
    static Map<String, String> own(Map<String, String> given) {
        Map<String, String> own = new HashMap<>(given);
        own.remove(RUN);
        own.put(TaskConfig.TASK_CLASS_CONFIG, own.remove(TASK_CLASS));
        return own;
    }

    /** A new task of the connector, by the class loader of its plugin. */
    static <T extends Task> T make(String name, Class<T> type) {
        try {
            ClassLoader loader = Thread.currentThread().getContextClassLoader();
            return Class.forName(name, true, loader).asSubclass(type).getDeclaredConstructor().newInstance();
        } catch (ReflectiveOperationException | LinkageError | ClassCastException error) {
            throw new ConnectException("Failed to create a task of class " + name, error);
        }
    }
}
