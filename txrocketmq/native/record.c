/* How does a message record get into the log's mapping? The twin of txrocketmq.codec.record.encode_record, which says the layout. */
#include "native.h"

enum {
    BORN_HOST_V6 = 0x10,
    STORE_HOST_V6 = 0x20,
    FIXED_BYTES = 74, /* all but hosts, body, topic with its length, properties */
    MAX_PROPERTIES = 32767,
};

/* What Python remembers of hosts and topics, and what computes CRC-32: see remember(). */
static PyObject *known_hosts, *known_topics, *crc32;

/* The host that was looked up last, for each of the two: a connection's is the same object each time. */
typedef struct {
    PyObject *host, *packed;
} LastHost;

static LastHost last_born, last_store;

/* remember(hosts, topics, crc32): the dicts that map hosts to their bytes and topics to (magic, length and bytes) */
static PyObject *remember(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    if (count != 3 || !PyDict_Check(args[0]) || !PyDict_Check(args[1])) {
        PyErr_SetString(PyExc_TypeError, "two dicts and a function are needed");
        return NULL;
    }
    PyObject *before[] = {known_hosts, known_topics, crc32};
    known_hosts = Py_NewRef(args[0]);
    known_topics = Py_NewRef(args[1]);
    crc32 = Py_NewRef(args[2]);
    for (int i = 0; i < 3; i++)
        Py_XDECREF(before[i]);
    Py_RETURN_NONE;
}

/* A host's bytes, which belong to last; NULL without an exception where they are not known yet. */
static PyObject *host_bytes(LastHost *last, PyObject *host)
{
    if (LIKELY(host == last->host))
        return last->packed;
    PyObject *packed = PyDict_GetItemWithError(known_hosts, host);
    if (packed == NULL || !PyBytes_CheckExact(packed) || (PyBytes_Size(packed) != 8 && PyBytes_Size(packed) != 20)) {
        PyErr_Clear();
        return NULL;
    }
    PyObject *old_host = last->host, *old_packed = last->packed;
    last->host = Py_NewRef(host);
    last->packed = Py_NewRef(packed);
    Py_XDECREF(old_host);
    Py_XDECREF(old_packed);
    return packed;
}

static int is_int32(long long value)
{
    return value >= INT32_MIN && value <= INT32_MAX;
}

/* A body's CRC-32; -1 with an exception. */
static int64_t crc_of(PyObject *body)
{
    PyObject *found = PyObject_CallFunctionObjArgs(crc32, body, NULL);
    if (found == NULL)
        return -1;
    unsigned long value = PyLong_AsUnsignedLongMask(found);
    Py_DECREF(found);
    return PyErr_Occurred() ? -1 : (int64_t)(value & 0x7FFFFFFFu);
}

/* put_record(buffer, position, limit, topic, queue id, body, properties, flag, sysFlag, born time, born host, store host,
 *            reconsume times, prepared transaction offset, queue offset, physical offset, store time) -> size, or None
 *
 * Writes the record at a position of the buffer; nothing is written where it would end beyond the limit. */
static PyObject *put_record(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    if (UNLIKELY(count != 17 || known_hosts == NULL))
        Py_RETURN_NONE;
    PyObject *body = args[5], *properties = args[6];
    long long position = PyLong_AsLongLong(args[1]), limit = PyLong_AsLongLong(args[2]);
    long long queue_id = PyLong_AsLongLong(args[4]), flag = PyLong_AsLongLong(args[7]);
    long long sys_flag = PyLong_AsLongLong(args[8]), born = PyLong_AsLongLong(args[9]);
    long long reconsumed = PyLong_AsLongLong(args[12]), prepared = PyLong_AsLongLong(args[13]);
    long long queue_offset = PyLong_AsLongLong(args[14]), physical = PyLong_AsLongLong(args[15]);
    long long stored = PyLong_AsLongLong(args[16]);
    if (UNLIKELY(PyErr_Occurred() != NULL)) {
        PyErr_Clear();
        Py_RETURN_NONE;
    }
    PyObject *born_host = host_bytes(&last_born, args[10]), *store_host = host_bytes(&last_store, args[11]), *topic = NULL;
    if (UNLIKELY(born_host == NULL || store_host == NULL ||
                 (topic = PyDict_GetItemWithError(known_topics, args[3])) == NULL || !PyTuple_CheckExact(topic) ||
                 PyTuple_Size(topic) != 2 || !PyBytes_CheckExact(PyTuple_GetItem(topic, 1)) || !PyBytes_CheckExact(body) ||
                 !PyBytes_CheckExact(properties))) {
        PyErr_Clear();
        Py_RETURN_NONE;
    }
    PyObject *topic_bytes = PyTuple_GetItem(topic, 1);
    long magic = PyLong_AsLong(PyTuple_GetItem(topic, 0));
    Py_ssize_t body_size = PyBytes_Size(body), properties_size = PyBytes_Size(properties);
    Py_ssize_t topic_size = PyBytes_Size(topic_bytes), born_size = PyBytes_Size(born_host);
    Py_ssize_t store_size = PyBytes_Size(store_host);
    sys_flag &= ~(long long)(BORN_HOST_V6 | STORE_HOST_V6);
    sys_flag |= (born_size != 8 ? BORN_HOST_V6 : 0) | (store_size != 8 ? STORE_HOST_V6 : 0);
    if (UNLIKELY(PyErr_Occurred() || !is_int32(magic) || !is_int32(queue_id) || !is_int32(flag) || !is_int32(sys_flag) ||
                 !is_int32(reconsumed) || body_size > INT32_MAX / 2 || properties_size > MAX_PROPERTIES ||
                 topic_size > INT16_MAX + 2)) {
        PyErr_Clear();
        Py_RETURN_NONE;
    }
    Py_ssize_t size = FIXED_BYTES + born_size + store_size + body_size + topic_size + properties_size;
    if (position < 0 || limit < 0 || size > limit - position)
        Py_RETURN_NONE;
    /* It may let other threads run, which must not find the mapping in use. What is borrowed above may be forgotten meanwhile. */
    Py_INCREF(born_host);
    Py_INCREF(store_host);
    Py_INCREF(topic_bytes);
    int64_t crc = crc_of(body);
    PyObject *result = NULL;
    Py_buffer buffer;
    if (crc < 0)
        goto done;
    if (PyObject_GetBuffer(args[0], &buffer, PyBUF_WRITABLE) < 0) {
        PyErr_Clear();
        result = Py_NewRef(Py_None);
        goto done;
    }
    if (position > buffer.len || size > buffer.len - position) {
        result = Py_NewRef(Py_None);
    } else {
        unsigned char *start = (unsigned char *)buffer.buf + position, *at = start + 8;
        put_32(at, (uint32_t)crc);
        put_32(at + 4, (uint32_t)queue_id);
        put_32(at + 8, (uint32_t)flag);
        put_64(at + 12, (uint64_t)queue_offset);
        put_64(at + 20, (uint64_t)physical);
        put_32(at + 28, (uint32_t)sys_flag);
        put_64(at + 32, (uint64_t)born);
        at += 40;
        memcpy(at, PyBytes_AsString(born_host), (size_t)born_size);
        at += born_size;
        put_64(at, (uint64_t)stored);
        at += 8;
        memcpy(at, PyBytes_AsString(store_host), (size_t)store_size);
        at += store_size;
        put_32(at, (uint32_t)reconsumed);
        put_64(at + 4, (uint64_t)prepared);
        put_32(at + 12, (uint32_t)body_size);
        at += 16;
        memcpy(at, PyBytes_AsString(body), (size_t)body_size);
        at += body_size;
        memcpy(at, PyBytes_AsString(topic_bytes), (size_t)topic_size);
        at += topic_size;
        put_16(at, (uint16_t)properties_size);
        memcpy(at + 2, PyBytes_AsString(properties), (size_t)properties_size);
        /* What makes a record of it comes last. */
        __atomic_signal_fence(__ATOMIC_SEQ_CST);
        put_32(start, (uint32_t)size);
        put_32(start + 4, (uint32_t)magic);
        result = PyLong_FromSsize_t(size);
    }
    PyBuffer_Release(&buffer);
done:
    Py_DECREF(born_host);
    Py_DECREF(store_host);
    Py_DECREF(topic_bytes);
    return result;
}

PyMethodDef record_methods[] = {
    {"remember", (PyCFunction)(void (*)(void))remember, METH_FASTCALL, NULL},
    {"put_record", (PyCFunction)(void (*)(void))put_record, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};
