package connectx.host;

import com.fasterxml.jackson.databind.JsonNode;
import org.apache.kafka.connect.runtime.TargetState;

/** Hands each order to the part that carries it out. */
final class Orders {
    private final Connectors connectors;
    private final Tasks tasks;
    private final Questions questions;
    private final Turns turns;
    private final Link link;

    Orders(Connectors connectors, Tasks tasks, Questions questions, Turns turns, Link link) {
        this.connectors = connectors;
        this.tasks = tasks;
        this.questions = questions;
        this.turns = turns;
        this.link = link;
    }

    void take(JsonNode order) {
        String name = order.get("order").asText();
        switch (name) {
            case "StartConnector" -> inTurn(order, () -> connectors.start(order));
            case "SetConnectorTargetState" -> inTurn(order, () -> connectors.setTargetState(order));
            case "GenerateTaskConfigs" -> inTurn(order, () -> connectors.generate(order));
            case "StopConnector" -> {
                connectors.release(order);
                inTurn(order, () -> connectors.stop(order));
            }
            case "PrepareTask" -> inTurn(order, () -> tasks.prepare(order));
            case "InitTaskProducer" -> tasks.run(order).mayInitialize();
            case "BeginTask" -> inTurn(order, () -> tasks.run(order).begin());
            case "SetTaskTargetState" -> {
                TaskRun run = tasks.run(order);
                TargetState target = TargetState.valueOf(order.get("target_state").asText());
                run.setPaused(target == TargetState.PAUSED);
                if (run.isRunning()) {
                    turns.after(run.id.connector() + "/", () -> connectors.move(run.id.connector(), target, (e, s) -> { }));
                }
            }
            case "StopTask" -> {
                TaskRun run = tasks.run(order);
                run.stop();  // one that waits for its turn must not keep the turn
                inTurn(order, () -> tasks.stop(run));
            }
            default -> turns.beside(() -> questions.answer(name, order));
        }
    }

    private void inTurn(JsonNode order, Runnable work) {
        String key = order.has("task") ? order.get("task").asText() : order.get("connector").asText() + "/";
        turns.after(key, () -> {
            try {
                work.run();
            } catch (Throwable error) {
                failed(order, error);
            }
        });
    }

    private void failed(JsonNode order, Throwable error) {
        if (order.has("task")) {
            tasks.run(order).onFailure(Tasks.id(order), error);
        } else {
            link.report(Connectors.report("ConnectorFailed", order, "trace", Link.trace(error)));
        }
    }
}
