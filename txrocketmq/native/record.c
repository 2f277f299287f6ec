/* How does a message record get into the log's mapping? The twin of txrocketmq.codec.record.encode_record, which says the layout. */
#include "native.h"

enum {
    BORN_HOST_V6 = 0x10,
    STORE_HOST_V6 = 0x20,
    FIXED_BYTES = 74, /* all but hosts, body, topic with its length, properties */
    MAX_PROPERTIES = 32767,
};

/* remember(hosts, topics, crc32): the dicts that map hosts to their bytes and topics to (magic, length and bytes) */
static PyObject *remember(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    if (count != 3 || !PyDict_Check(args[0]) || !PyDict_Check(args[1])) {
        PyErr_SetString(PyExc_TypeError, "two dicts and a function are needed");
        return NULL;
    }
    State *state = state_of(module);
    keep(state, KNOWN_HOSTS, args[0]);
    keep(state, KNOWN_TOPICS, args[1]);
    keep(state, CRC32, args[2]);
    for (int place = LAST_BORN_HOST; place <= LAST_STORE_BYTES; place++)
        keep(state, place, NULL);
    Py_RETURN_NONE;
}

/* A host's bytes, for the caller to give back; NULL without an exception where they are not known yet.
 *
 * The host that was looked up last is kept, its bytes behind it: a connection's is the same object each time. */
static PyObject *host_bytes(State *state, int last, PyObject *host)
{
    if (LIKELY(host == state->kept[last]))
        return Py_NewRef(state->kept[last + 1]);
    PyObject *packed = PyDict_GetItemWithError(state->kept[KNOWN_HOSTS], host);
    if (packed == NULL || !PyBytes_CheckExact(packed) || (PyBytes_Size(packed) != 8 && PyBytes_Size(packed) != 20)) {
        PyErr_Clear();
        return NULL;
    }
    Py_INCREF(packed);
    /* Both before anything is given back, which may come here again. */
    PyObject *old_host = state->kept[last], *old_packed = state->kept[last + 1];
    state->kept[last] = Py_NewRef(host);
    state->kept[last + 1] = Py_NewRef(packed);
    Py_XDECREF(old_host);
    Py_XDECREF(old_packed);
    return packed;
}

static int is_int32(long long value)
{
    return value >= INT32_MIN && value <= INT32_MAX;
}

/* A body's CRC-32; -1 with an exception. */
static int64_t crc_of(State *state, PyObject *body)
{
    PyObject *function = Py_NewRef(state->kept[CRC32]);
    PyObject *found = PyObject_CallFunctionObjArgs(function, body, NULL);
    Py_DECREF(function);
    if (found == NULL)
        return -1;
    unsigned long value = PyLong_AsUnsignedLongMask(found);
    Py_DECREF(found);
    return PyErr_Occurred() ? -1 : (int64_t)(value & 0x7FFFFFFFu);
}

typedef struct {
    long long position, limit, queue_id, flag, sys_flag, born, reconsumed, prepared, queue_offset, physical, stored;
} Numbers;

static int take_numbers(PyObject *const *args, Numbers *numbers)
{
    return number(args[1], &numbers->position) && number(args[2], &numbers->limit) && number(args[4], &numbers->queue_id) &&
           number(args[7], &numbers->flag) && number(args[8], &numbers->sys_flag) && number(args[9], &numbers->born) &&
           number(args[12], &numbers->reconsumed) && number(args[13], &numbers->prepared) &&
           number(args[14], &numbers->queue_offset) && number(args[15], &numbers->physical) &&
           number(args[16], &numbers->stored) && numbers->position >= 0 && numbers->limit >= 0 &&
           is_int32(numbers->queue_id) && is_int32(numbers->flag) && is_int32(numbers->reconsumed);
}

/* The parts of a record that are bytes, each with its size; references are held to all of them, NULL where one is not known. */
typedef struct {
    PyObject *object;
    Py_ssize_t size;
} Bytes;

typedef struct {
    Bytes born_host, store_host, topic, body, properties;
    long long magic;
} Texts;

static Bytes bytes_of(PyObject *object)
{
    return (Bytes){object, object == NULL ? 0 : PyBytes_Size(object)};
}

static int take_texts(State *state, PyObject *const *args, Texts *texts)
{
    texts->body = bytes_of(PyBytes_CheckExact(args[5]) ? Py_NewRef(args[5]) : NULL);
    texts->properties = bytes_of(PyBytes_CheckExact(args[6]) ? Py_NewRef(args[6]) : NULL);
    texts->born_host = bytes_of(host_bytes(state, LAST_BORN_HOST, args[10]));
    texts->store_host = bytes_of(host_bytes(state, LAST_STORE_HOST, args[11]));
    PyObject *topic = PyDict_GetItemWithError(state->kept[KNOWN_TOPICS], args[3]), *name;
    if (topic == NULL)
        PyErr_Clear();
    else if (PyTuple_CheckExact(topic) && PyTuple_Size(topic) == 2 && number(PyTuple_GetItem(topic, 0), &texts->magic) &&
             is_int32(texts->magic) && PyBytes_CheckExact(name = PyTuple_GetItem(topic, 1)))
        texts->topic = bytes_of(Py_NewRef(name));
    return texts->born_host.object != NULL && texts->store_host.object != NULL && texts->topic.object != NULL &&
           texts->topic.size <= INT16_MAX + 2 && texts->body.object != NULL && texts->body.size <= INT32_MAX / 2 &&
           texts->properties.object != NULL && texts->properties.size <= MAX_PROPERTIES;
}

static void give_back(const Texts *texts)
{
    Py_XDECREF(texts->born_host.object);
    Py_XDECREF(texts->store_host.object);
    Py_XDECREF(texts->topic.object);
    Py_XDECREF(texts->body.object);
    Py_XDECREF(texts->properties.object);
}

static unsigned char *put_bytes(unsigned char *at, Bytes bytes)
{
    memcpy(at, PyBytes_AsString(bytes.object), (size_t)bytes.size);
    return at + bytes.size;
}

static void write_record(unsigned char *start, Py_ssize_t size, const Numbers *numbers, const Texts *texts, int64_t crc)
{
    unsigned char *at = start + 8;
    put_32(at, (uint32_t)crc);
    put_32(at + 4, (uint32_t)numbers->queue_id);
    put_32(at + 8, (uint32_t)numbers->flag);
    put_64(at + 12, (uint64_t)numbers->queue_offset);
    put_64(at + 20, (uint64_t)numbers->physical);
    put_32(at + 28, (uint32_t)numbers->sys_flag);
    put_64(at + 32, (uint64_t)numbers->born);
    at = put_bytes(at + 40, texts->born_host);
    put_64(at, (uint64_t)numbers->stored);
    at = put_bytes(at + 8, texts->store_host);
    put_32(at, (uint32_t)numbers->reconsumed);
    put_64(at + 4, (uint64_t)numbers->prepared);
    put_32(at + 12, (uint32_t)texts->body.size);
    at = put_bytes(at + 16, texts->body);
    at = put_bytes(at, texts->topic);
    put_16(at, (uint16_t)texts->properties.size);
    put_bytes(at + 2, texts->properties);
    /* What makes a record of it comes last. */
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    put_32(start, (uint32_t)size);
    put_32(start + 4, (uint32_t)texts->magic);
}

/* put_record(buffer, position, limit, topic, queue id, body, properties, flag, sysFlag, born time, born host, store host,
 *            reconsume times, prepared transaction offset, queue offset, physical offset, store time) -> size, or None
 *
 * Writes the record at a position of the buffer; nothing is written where it would end beyond the limit. */
static PyObject *put_record(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    State *state = state_of(module);
    Numbers numbers;
    Texts texts = {0};
    if (UNLIKELY(count != 17 || state->kept[KNOWN_HOSTS] == NULL || !take_numbers(args, &numbers)))
        Py_RETURN_NONE;
    PyObject *result = NULL;
    int64_t crc;
    Py_buffer buffer;
    if (UNLIKELY(!take_texts(state, args, &texts)))
        goto other;
    numbers.sys_flag &= ~(long long)(BORN_HOST_V6 | STORE_HOST_V6);
    numbers.sys_flag |= (texts.born_host.size != 8 ? BORN_HOST_V6 : 0) | (texts.store_host.size != 8 ? STORE_HOST_V6 : 0);
    Py_ssize_t size = FIXED_BYTES + texts.born_host.size + texts.store_host.size + texts.body.size + texts.topic.size + texts.properties.size;
    if (UNLIKELY(!is_int32(numbers.sys_flag) || size > numbers.limit - numbers.position))
        goto other;
    /* It may let other threads run, which must not find the mapping in use. */
    if ((crc = crc_of(state, texts.body.object)) < 0)
        goto done;
    if (UNLIKELY(!get_buffer(args[0], &buffer, PyBUF_WRITABLE)))
        goto other;
    if (numbers.position > buffer.len || size > buffer.len - numbers.position) {
        PyBuffer_Release(&buffer);
        goto other;
    }
    write_record((unsigned char *)buffer.buf + numbers.position, size, &numbers, &texts, crc);
    PyBuffer_Release(&buffer);
    result = PyLong_FromSsize_t(size);
    goto done;
other:
    result = Py_NewRef(Py_None);
done:
    give_back(&texts);
    return result;
}

PyMethodDef record_methods[] = {
    {"remember", (PyCFunction)(void (*)(void))remember, METH_FASTCALL, NULL},
    {"put_record", (PyCFunction)(void (*)(void))put_record, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};
