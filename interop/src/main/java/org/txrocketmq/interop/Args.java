package org.txrocketmq.interop;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.util.ArrayList;
import java.util.List;

/** The arguments of one operation, read by name. */
final class Args {
    private final JsonObject fields;

    Args(JsonObject fields) {
        this.fields = fields;
    }

    boolean has(String name) {
        return fields.has(name) && !fields.get(name).isJsonNull();
    }

    String text(String name) {
        return required(name).getAsString();
    }

    String text(String name, String otherwise) {
        return has(name) ? text(name) : otherwise;
    }

    int integer(String name) {
        return required(name).getAsInt();
    }

    int integer(String name, int otherwise) {
        return has(name) ? integer(name) : otherwise;
    }

    long number(String name) {
        return required(name).getAsLong();
    }

    long number(String name, long otherwise) {
        return has(name) ? number(name) : otherwise;
    }

    boolean flag(String name) {
        return has(name) && required(name).getAsBoolean();
    }

    List<String> texts(String name) {
        List<String> values = new ArrayList<>();
        if (has(name)) {
            for (JsonElement value : required(name).getAsJsonArray()) {
                values.add(value.getAsString());
            }
        }
        return values;
    }

    List<Integer> integers(String name) {
        return texts(name).stream().map(Integer::valueOf).toList();
    }

    private JsonElement required(String name) {
        if (!has(name)) {
            throw new IllegalArgumentException("argument " + name + " is missing");
        }
        return fields.get(name);
    }
}
