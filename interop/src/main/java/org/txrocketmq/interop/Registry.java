package org.txrocketmq.interop;

import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/** Named things that are alive in the puppet. */
final class Registry<T> {
    private final Map<String, T> alive = new ConcurrentHashMap<>();
    private final String kind;

    Registry(String kind) {
        this.kind = kind;
    }

    void put(String name, T thing) {
        if (alive.putIfAbsent(name, thing) != null) {
            throw new IllegalArgumentException(kind + " " + name + " exists");
        }
    }

    /** The thing of that name, null when there is none. */
    T find(String name) {
        return alive.get(name);
    }

    T get(String name) {
        T thing = alive.get(name);
        if (thing == null) {
            throw new IllegalArgumentException("no " + kind + " " + name);
        }
        return thing;
    }

    T remove(String name) {
        T thing = get(name);
        alive.remove(name);
        return thing;
    }
}
