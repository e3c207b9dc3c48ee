package connectx.host;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.kafka.connect.runtime.Worker;
import org.apache.kafka.connect.runtime.rest.entities.ConfigInfos;
import org.apache.kafka.connect.runtime.rest.entities.Message;
import org.apache.kafka.connect.runtime.rest.errors.ConnectRestException;
import org.apache.kafka.connect.util.FutureCallback;

import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/** Questions of the worker's REST server; each is answered once. */
final class Questions {
    private static final long LIMIT_S = 85;

    private final ObjectMapper json = new ObjectMapper();
    private final Worker worker;
    private final Herder herder;
    private final Link link;

    Questions(Worker worker, Herder herder, Link link) {
        this.worker = worker;
        this.herder = herder;
        this.link = link;
    }

    void answer(String question, JsonNode order) {
        int number = order.get("id").asInt();
        try {
            link.report(Link.fields("Answer", "id", number, "value", value(question, order)));
        } catch (Throwable error) {
            Throwable cause = error instanceof ExecutionException && error.getCause() != null ? error.getCause() : error;
            int status = cause instanceof ConnectRestException rest ? rest.statusCode() : 500;
            String message = cause.getMessage() == null ? cause.getClass().getName() : cause.getMessage();
            if (cause instanceof TimeoutException) {
                message = "The plugin did not answer within " + LIMIT_S + " s";
            }
            link.report(Link.fields("Answer", "id", number, "error", message, "status", status));
        }
    }

    private Object value(String question, JsonNode order) throws Exception {
        switch (question) {
            case "Validate" -> {
                FutureCallback<ConfigInfos> answer = new FutureCallback<>();
                herder.validateConnectorConfig(Link.texts(order.get("config")), answer, false);
                return answer.get(LIMIT_S, TimeUnit.SECONDS);
            }
            case "PluginConfig" -> {
                return herder.connectorPluginConfig(order.get("plugin").asText());
            }
            case "ModifyOffsets" -> {
                FutureCallback<Message> answer = new FutureCallback<>();
                worker.modifyConnectorOffsets(order.get("connector").asText(), Link.texts(order.get("config")),
                    offsets(order.get("offsets")), answer);
                return answer.get(LIMIT_S, TimeUnit.SECONDS).message();
            }
            default -> throw new IllegalArgumentException("unknown order " + question);
        }
    }

    /** Offsets by partition; null resets all. */
    @SuppressWarnings("unchecked")
    private Map<Map<String, ?>, Map<String, ?>> offsets(JsonNode given) {
        if (given == null || given.isNull()) {
            return null;
        }
        Map<Map<String, ?>, Map<String, ?>> offsets = new HashMap<>();
        given.forEach(entry -> offsets.put(json.convertValue(entry.get("partition"), Map.class),
            json.convertValue(entry.get("offset"), Map.class)));
        return offsets;
    }
}
