/* How does a message get into the index? Java's String.hashCode, the twin of txrocketmq.model.javahash for ASCII, and IndexFile.put. */
#include "native.h"

/* index_hash(topic, key) -> number, or None */
static PyObject *index_hash(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    Py_ssize_t topic_size, key_size;
    const unsigned char *topic, *key;
    if (count != 2 || (topic = ascii(args[0], &topic_size)) == NULL || (key = ascii(args[1], &key_size)) == NULL)
        Py_RETURN_NONE;
    uint32_t hash = 31 * hash_on(0, topic, topic_size) + '#';
    return PyLong_FromLong(index_form(hash_on(hash, key, key_size)));
}

/* The file that gets the entries of one message. */
typedef struct {
    unsigned char *data;
    int64_t slots, number, slots_used;
    int64_t offset;
    int32_t seconds;
} File;

static void add_entry(File *file, int32_t hash)
{
    file->slots_used += put_entry(file->data, file->slots, file->number, (uint32_t)hash, file->offset, (uint32_t)file->seconds);
    file->number++;
}

/* The next of the keys that blanks separate, from *at on; its length, 0 behind the last one. */
static Py_ssize_t next_key(const unsigned char *keys, Py_ssize_t size, Py_ssize_t *at)
{
    while (*at < size && keys[*at] == ' ')
        (*at)++;
    Py_ssize_t end = *at;
    while (end < size && keys[end] != ' ')
        end++;
    return end - *at;
}

/* put_keys(buffer, slots, number, limit, slots used, begin offset, begin ms, topic, unique id, keys, tag hash, physical offset,
 *          store ms) -> (number, slots used), or None
 *
 * Adds the entries of one message, of which there is at least one, from a number on, then writes the header; all or nothing. The file
 * has entries already. Keys and unique id are texts or None, the tag's hash is -1 without one. */
static PyObject *put_keys(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    if (UNLIKELY(count != 13))
        Py_RETURN_NONE;
    long long slots, first, limit, slots_used, begin_offset, begin_ms, tag_hash, offset, stored_ms;
    if (UNLIKELY(!number(args[1], &slots) || !number(args[2], &first) || !number(args[3], &limit) ||
                 !number(args[4], &slots_used) || !number(args[5], &begin_offset) || !number(args[6], &begin_ms) ||
                 !number(args[10], &tag_hash) || !number(args[11], &offset) || !number(args[12], &stored_ms)))
        Py_RETURN_NONE;
    Py_ssize_t topic_size, id_size = 0, keys_size = 0;
    const unsigned char *topic = ascii(args[7], &topic_size), *id = NULL, *keys = NULL;
    if (topic == NULL || (args[8] != Py_None && (id = ascii(args[8], &id_size)) == NULL) ||
        (args[9] != Py_None && (keys = ascii(args[9], &keys_size)) == NULL))
        Py_RETURN_NONE;
    int64_t wanted = (id_size > 0) + (tag_hash >= 0);
    for (Py_ssize_t at = 0, size; (size = next_key(keys, keys_size, &at)) > 0; at += size)
        wanted++;
    if (wanted == 0 || slots < 1 || slots > INT32_MAX || first < 2 || limit < first || limit > INT32_MAX || wanted > limit - first ||
        tag_hash > INT32_MAX || slots_used < 0 || slots_used > INT32_MAX - wanted || begin_ms < 0 || stored_ms < 0)
        Py_RETURN_NONE;
    Py_buffer buffer;
    if (!get_buffer(args[0], &buffer, PyBUF_WRITABLE))
        Py_RETURN_NONE;
    File file = {buffer.buf, slots, first, slots_used, offset, 0};
    if (INDEX_HEADER_BYTES + INDEX_SLOT_BYTES * slots + INDEX_ENTRY_BYTES * limit > buffer.len) {
        PyBuffer_Release(&buffer);
        Py_RETURN_NONE;
    }
    if (begin_ms > 0 && stored_ms > begin_ms) {
        long long seconds = (stored_ms - begin_ms) / 1000;
        file.seconds = seconds > INT32_MAX ? INT32_MAX : (int32_t)seconds;
    }
    uint32_t hash = 31 * hash_on(0, topic, topic_size) + '#';
    if (id_size > 0)
        add_entry(&file, index_form(hash_on(hash, id, id_size)));
    for (Py_ssize_t at = 0, size; (size = next_key(keys, keys_size, &at)) > 0; at += size)
        add_entry(&file, index_form(hash_on(hash, keys + at, size)));
    if (tag_hash >= 0)
        add_entry(&file, (int32_t)tag_hash);
    put_64(file.data, (uint64_t)begin_ms);
    put_64(file.data + 8, (uint64_t)stored_ms);
    put_64(file.data + 16, (uint64_t)begin_offset);
    put_64(file.data + 24, (uint64_t)offset);
    put_32(file.data + 32, (uint32_t)file.slots_used);
    put_32(file.data + 36, (uint32_t)file.number);
    PyBuffer_Release(&buffer);
    return Py_BuildValue("(LL)", (long long)file.number, (long long)file.slots_used);
}

PyMethodDef hashes_methods[] = {
    {"index_hash", (PyCFunction)(void (*)(void))index_hash, METH_FASTCALL, NULL},
    {"put_keys", (PyCFunction)(void (*)(void))put_keys, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};
