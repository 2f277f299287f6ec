/* What does a stretch of the log mean for queues and index? The twins of txrocketmq.store.blocks and of IndexFile.put_items.
 *
 * The bytes come from another machine or from a torn file: every length is compared with what is there before it is used. */
#include "native.h"

enum {
    MAGIC_V1 = -626843481,
    MAGIC_V2 = -626843477,
    MIN_RECORD_BYTES = 91,
    HEAD_BYTES = 88,
    FLAGS_AT = 36,
    TIME_AT = 56,
    V6_EXTRA = 12,
    BORN_HOST_V6 = 0x10,
    STORE_HOST_V6 = 0x20,
    SPECIAL = 0x80 | 0xC,
    MAX_TOPIC_V1 = 127,
    MAX_TOPIC = 32767,
    MAX_RUNS = 256,
    UNIT_BYTES = 20,
    ITEM_BYTES = 20,
};

static const char SCHEDULE[] = "SCHEDULE_TOPIC_XXXX";
static const char LIGHT[] = "INNER_MULTI_QUEUE_OFFSET";
static const char SEAL[] = "__CRC32#";

typedef struct {
    const unsigned char *at;
    size_t size;
} Text;

/* One queue's part: of its topic "topic#" is hashed once. The topic is a copy, which the name holds: the buffer may change. */
typedef struct {
    PyObject *name;
    Text topic;
    uint32_t hash;
    int32_t queue_id;
    int64_t first, next, end_offset;
    Py_ssize_t records;
    PyObject *units;
    unsigned char *fill;
} Run;

typedef struct {
    int64_t offset, code;
    int32_t size;
    int32_t run;
} Found;

typedef struct {
    Run runs[MAX_RUNS];
    int run_count;
    Found *found;
    Py_ssize_t records, room;
    unsigned char *items;
    size_t items_used, items_room;
    int64_t store_timestamp;
} Block;

/* A record whose lengths add up: where its parts are. They are read once: another process, or what computes the CRC, may change the bytes. */
typedef struct {
    int32_t size;
    size_t body, body_end, time_at;
    Text topic, properties;
} Parts;

static int is_ascii(Text text)
{
    unsigned char all = 0;
    for (size_t i = 0; i < text.size; i++)
        all |= text.at[i];
    return all < 0x80;
}

static inline int is_text(Text text, const char *wanted, size_t size)
{
    return text.size == size && memcmp(text.at, wanted, size) == 0;
}

/* Of the record at data[at], which has at least MIN_RECORD_BYTES before limit; 0 when the lengths do not add up. */
static int take_apart(const unsigned char *data, size_t at, size_t limit, Parts *parts)
{
    int32_t size = (int32_t)get_32(data + at), magic = (int32_t)get_32(data + at + 4);
    uint32_t flags = get_32(data + at + FLAGS_AT);
    if ((magic != MAGIC_V1 && magic != MAGIC_V2) || size < MIN_RECORD_BYTES || (size_t)size > limit - at)
        return 0;
    size_t end = at + (size_t)size;
    parts->size = size;
    parts->time_at = at + TIME_AT + (flags & BORN_HOST_V6 ? V6_EXTRA : 0);
    parts->body = at + HEAD_BYTES + (flags & BORN_HOST_V6 ? V6_EXTRA : 0) + (flags & STORE_HOST_V6 ? V6_EXTRA : 0);
    if (parts->body > end)
        return 0;
    int32_t body_size = (int32_t)get_32(data + parts->body - 4);
    if (body_size < 0 || (size_t)body_size > end - parts->body)
        return 0;
    parts->body_end = parts->body + (size_t)body_size;
    if (end - parts->body_end < 3)
        return 0;
    size_t topic_at = parts->body_end + 1, topic_size = data[parts->body_end];
    if (magic == MAGIC_V2) {
        topic_size = get_16(data + parts->body_end);
        topic_at++;
    }
    if (topic_size > (magic == MAGIC_V1 ? MAX_TOPIC_V1 : MAX_TOPIC) || topic_size + 2 > end - topic_at)
        return 0;
    size_t topic_end = topic_at + topic_size;
    if (get_16(data + topic_end) != end - topic_end - 2 || end - topic_end - 2 > INT16_MAX)
        return 0;
    parts->topic = (Text){data + topic_at, topic_size};
    parts->properties = (Text){data + topic_end + 2, end - topic_end - 2};
    return 1;
}

static inline int ends_with(const unsigned char *start, const unsigned char *end, const char *name, size_t size)
{
    return (size_t)(end - start) >= size && memcmp(end - size, name, size) == 0;
}

/* Unique id, keys and tag; 0 where there is more that matters, or a value that is not ASCII. */
static int find_keys(Text text, int may_be_sealed, Text *uniq_key, Text *keys, Text *tag)
{
    const unsigned char *at = text.at, *end = text.at + text.size;
    uniq_key->size = keys->size = tag->size = 0;
    if (text.size == 0)
        return 1;
    if (memchr(at, 0, text.size) != NULL)
        return 0;
    while (at < end) {
        const unsigned char *stop = memchr(at, 2, (size_t)(end - at));
        if (stop == NULL)
            stop = end;
        const unsigned char *middle = memchr(at, 1, (size_t)(stop - at));
        for (const unsigned char *each = middle; each != NULL;
             each = memchr(each + 1, 1, (size_t)(stop - each - 1)))
            if (ends_with(text.at, each, LIGHT, sizeof LIGHT - 1) ||
                (!may_be_sealed && ends_with(text.at, each, SEAL, sizeof SEAL - 1)))
                return 0;
        if (middle != NULL && middle + 1 < stop) {
            Text name = {at, (size_t)(middle - at)};
            Text value = {middle + 1, (size_t)(stop - middle - 1)};
            if (is_text(name, "UNIQ_KEY", 8))
                *uniq_key = value;
            else if (is_text(name, "TAGS", 4))
                *tag = value;
            else if (is_text(name, "KEYS", 4))
                *keys = value;
        }
        at = stop + 1;
    }
    return is_ascii(*uniq_key) && is_ascii(*keys) && is_ascii(*tag);
}

/* The run of a record; -1 where there is none that it continues and none can begin, -2 with an exception. *is_new: it is not counted yet. */
static int find_run(Block *block, Text topic, int32_t queue_id, int64_t index, int last, int *is_new)
{
    *is_new = 0;
    for (int i = 0; i < block->run_count; i++) {
        /* Mostly the one of the record before. */
        int number = last - i < 0 ? last - i + block->run_count : last - i;
        Run *run = &block->runs[number];
        if (run->queue_id == queue_id && run->topic.size == topic.size &&
            memcmp(run->topic.at, topic.at, topic.size) == 0)
            return run->next == index ? number : -1;
    }
    if (block->run_count == MAX_RUNS || topic.size == 0 || !is_ascii(topic) ||
        memchr(topic.at, 0, topic.size) != NULL || is_text(topic, SCHEDULE, sizeof SCHEDULE - 1))
        return -1;
    *is_new = 1;
    Run *run = &block->runs[block->run_count];
    *run = (Run){.queue_id = queue_id, .first = index, .next = index};
    run->name = PyUnicode_DecodeASCII((const char *)topic.at, (Py_ssize_t)topic.size, "replace");
    Py_ssize_t size;
    if (run->name == NULL || (run->topic.at = ascii(run->name, &size)) == NULL)
        return -2;
    run->topic.size = (size_t)size;
    run->hash = 31 * hash_on(0, run->topic.at, size) + '#';
    return block->run_count;
}

static int add_item(Block *block, uint32_t hash, int64_t offset, int64_t timestamp)
{
    if (block->items_used + ITEM_BYTES > block->items_room) {
        size_t room = block->items_room ? 2 * block->items_room : 256 * ITEM_BYTES;
        unsigned char *items = PyMem_Realloc(block->items, room);
        if (items == NULL)
            return -1;
        block->items = items;
        block->items_room = room;
    }
    unsigned char *at = block->items + block->items_used;
    hash = (uint32_t)index_form(hash);
    memcpy(at, &hash, 4);
    memcpy(at + 4, &offset, 8);
    memcpy(at + 12, &timestamp, 8);
    block->items_used += ITEM_BYTES;
    return 0;
}

static int add_items(Block *block, uint32_t hash, Text uniq_key, Text keys, Text tag, int64_t offset, int64_t timestamp)
{
    if (uniq_key.size && add_item(block, hash_on(hash, uniq_key.at, (Py_ssize_t)uniq_key.size), offset, timestamp) < 0)
        return -1;
    for (size_t at = 0; at < keys.size;) {
        const unsigned char *start = keys.at + at, *blank = memchr(start, ' ', keys.size - at);
        size_t size = blank == NULL ? keys.size - at : (size_t)(blank - start);
        if (size && add_item(block, hash_on(hash, start, (Py_ssize_t)size), offset, timestamp) < 0)
            return -1;
        at += size + 1;
    }
    if (tag.size) {
        hash = hash_on(hash, (const unsigned char *)"T#", 2);
        return add_item(block, hash_on(hash, tag.at, (Py_ssize_t)tag.size), offset, timestamp);
    }
    return 0;
}

static int add_record(Block *block, Found found)
{
    if (block->records == block->room) {
        Py_ssize_t room = block->room ? 2 * block->room : 256;
        Found *grown = PyMem_Realloc(block->found, (size_t)room * sizeof *grown);
        if (grown == NULL)
            return -1;
        block->found = grown;
        block->room = room;
    }
    block->found[block->records++] = found;
    return 0;
}

/* What computes a body's CRC, and of what: a view of the whole buffer, NULL for a built-in function, which keeps nothing of what it gets. */
typedef struct {
    PyObject *function, *view;
} Check;

/* Calls the function with a part of the view, which shows nothing afterwards; NULL with an exception. */
static PyObject *call_with_part(const Check *check, size_t start, size_t end)
{
    PyObject *part = PySequence_GetSlice(check->view, (Py_ssize_t)start, (Py_ssize_t)end);
    if (part == NULL)
        return NULL;
    PyObject *result = PyObject_CallFunctionObjArgs(check->function, part, NULL);
    if (result != NULL) {
        PyObject *released = PyObject_CallMethod(part, "release", NULL);
        if (released == NULL)
            Py_CLEAR(result);
        Py_XDECREF(released);
    }
    Py_DECREF(part);
    return result;
}

/* Whether a body has the CRC that its record says; -1 with an exception. */
static int is_whole(const Check *check, unsigned char *data, size_t start, size_t end, int32_t told)
{
    if (start == end)
        return 1;
    PyObject *result;
    if (check->view != NULL) {
        result = call_with_part(check, start, end);
    } else {
        PyObject *part = PyMemoryView_FromMemory((char *)data + start, (Py_ssize_t)(end - start), PyBUF_READ);
        if (part == NULL)
            return -1;
        result = PyObject_CallFunctionObjArgs(check->function, part, NULL);
        Py_DECREF(part);
    }
    if (result == NULL)
        return -1;
    unsigned long value = PyLong_AsUnsignedLongMask(result);
    Py_DECREF(result);
    if (PyErr_Occurred())
        return -1;
    return (int32_t)(value & 0x7FFFFFFFu) == told;
}

/* Walk; -1 with an exception. Bodies are checked where there is a check. */
static int walk(Block *block, unsigned char *data, size_t *position, size_t limit, int64_t offset, const Check *check)
{
    size_t at = *position;
    int last = 0;
    while (limit >= MIN_RECORD_BYTES && at <= limit - MIN_RECORD_BYTES) {
        const unsigned char *head = data + at;
        int64_t index = (int64_t)get_64(head + 20), told = (int64_t)get_64(head + 28);
        Parts parts;
        Text uniq_key = {0}, keys = {0}, tag = {0};
        int is_new;
        if (told != offset || index <= 0 || index == INT64_MAX || get_32(head + FLAGS_AT) & SPECIAL ||
            !take_apart(data, at, limit, &parts))
            break;
        int which = find_run(block, parts.topic, (int32_t)get_32(head + 12), index, last, &is_new);
        if (which == -2)
            return -1;
        if (which < 0 || !find_keys(parts.properties, check == NULL, &uniq_key, &keys, &tag))
            break;
        if (check != NULL) {
            int whole = is_whole(check, data, parts.body, parts.body_end, (int32_t)get_32(head + 8));
            if (whole < 0)
                return -1;
            if (!whole)
                break;
        }
        Run *run = &block->runs[which];
        int32_t size = parts.size;
        int64_t timestamp = (int64_t)get_64(data + parts.time_at);
        /* Java's hash of the tag has a sign. */
        int64_t code = (int32_t)hash_on(0, tag.at, (Py_ssize_t)tag.size);
        if (offset > INT64_MAX - size)
            break;
        if (add_record(block, (Found){offset, code, size, which}) < 0 ||
            add_items(block, run->hash, uniq_key, keys, tag, offset, timestamp) < 0) {
            PyErr_NoMemory();
            return -1;
        }
        block->run_count += is_new;
        last = which;
        run->records++;
        run->next = index + 1;
        offset += size;
        run->end_offset = offset;
        block->store_timestamp = timestamp;
        at += (size_t)size;
    }
    *position = at;
    return 0;
}

/* The runs as a list of tuples; NULL with an exception. */
static PyObject *runs_of(Block *block)
{
    PyObject *list = NULL;
    for (int i = 0; i < block->run_count; i++) {
        Run *run = &block->runs[i];
        run->units = PyBytes_FromStringAndSize(NULL, run->records * UNIT_BYTES);
        if (run->units == NULL)
            goto done;
        run->fill = (unsigned char *)PyBytes_AsString(run->units);
    }
    for (Py_ssize_t i = 0; i < block->records; i++) {
        Found *found = &block->found[i];
        unsigned char **fill = &block->runs[found->run].fill;
        put_64(*fill, (uint64_t)found->offset);
        put_32(*fill + 8, (uint32_t)found->size);
        put_64(*fill + 12, (uint64_t)found->code);
        *fill += UNIT_BYTES;
    }
    list = PyList_New(block->run_count);
    for (int i = 0; list != NULL && i < block->run_count; i++) {
        Run *run = &block->runs[i];
        PyObject *tuple = Py_BuildValue("(OiLOL)", run->name, (int)run->queue_id, (long long)run->first, run->units,
                                        (long long)run->end_offset);
        if (tuple == NULL || PyList_SetItem(list, i, tuple) < 0)
            Py_CLEAR(list);
    }
done:
    for (int i = 0; i < block->run_count; i++)
        Py_CLEAR(block->runs[i].units);
    return list;
}

/* scan_block(buffer, position, limit, offset, crc) -> (end, records, runs, entries, last offset, store time), or None */
static PyObject *scan_block(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    Py_ssize_t position, limit;
    long long offset;
    Py_buffer buffer;
    if (count != 5 || !size_number(args[1], &position) || !size_number(args[2], &limit) || !number(args[3], &offset) ||
        position < 0 || limit < 0 || offset < 0 || !get_buffer(args[0], &buffer, PyBUF_SIMPLE))
        Py_RETURN_NONE;
    if (limit > buffer.len)
        limit = buffer.len;
    PyObject *result = NULL, *runs = NULL;
    size_t end = (size_t)position;
    Check check = {args[4], NULL};
    int is_checked = args[4] != Py_None;
    if (is_checked && !PyCFunction_Check(args[4]) && (check.view = PyMemoryView_FromObject(args[0])) == NULL) {
        PyBuffer_Release(&buffer);
        return NULL;
    }
    Block *block = PyMem_Calloc(1, sizeof *block);
    if (block == NULL) {
        PyErr_NoMemory();
    } else if (walk(block, buffer.buf, &end, (size_t)limit, offset, is_checked ? &check : NULL) == 0 &&
               (runs = runs_of(block)) != NULL) {
        int64_t last = block->records ? block->found[block->records - 1].offset : 0;
        result = Py_BuildValue("(nnNy#LL)", (Py_ssize_t)end, block->records, runs,
                               block->items == NULL ? "" : (const char *)block->items, (Py_ssize_t)block->items_used,
                               (long long)last, (long long)block->store_timestamp);
    }
    if (block != NULL) {
        /* The last may be one that is not counted. */
        for (int i = 0; i <= block->run_count && i < MAX_RUNS; i++)
            Py_XDECREF(block->runs[i].name);
        PyMem_Free(block->found);
        PyMem_Free(block->items);
        PyMem_Free(block);
    }
    Py_XDECREF(check.view);
    PyBuffer_Release(&buffer);
    return result;
}

/* Seconds between two times as an index entry says them. */
static uint32_t seconds_between(int64_t begin_ms, int64_t ms)
{
    int64_t between;
    if (begin_ms <= 0)
        return 0;
    /* The first is not negative: the difference can be too small for its type alone. */
    if (__builtin_sub_overflow(ms, begin_ms, &between) || between < 0)
        return 0;
    between /= 1000;
    return between > INT32_MAX ? INT32_MAX : (uint32_t)between;
}

/* put_index(buffer, items, start, number, limit, slots, begin ms) -> (entries put, slots that were empty), or None
 *
 * Puts items from the start-th on as entries from a number on, up to that limit. */
static PyObject *put_index(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    Py_ssize_t start, first, limit, slots;
    long long begin_ms;
    Py_buffer buffer, items;
    if (count != 7 || !size_number(args[2], &start) || !size_number(args[3], &first) || !size_number(args[4], &limit) ||
        !size_number(args[5], &slots) || !number(args[6], &begin_ms) || !get_buffer(args[0], &buffer, PyBUF_WRITABLE))
        Py_RETURN_NONE;
    if (!get_buffer(args[1], &items, PyBUF_SIMPLE)) {
        PyBuffer_Release(&buffer);
        Py_RETURN_NONE;
    }
    PyObject *result = NULL;
    Py_ssize_t total = items.len / ITEM_BYTES, room = (buffer.len - INDEX_HEADER_BYTES) / 4;
    /* Entries lie behind all slots. */
    if (start < 0 || start > total || first < 1 || slots < 1 || slots > room || first > INT32_MAX || limit > INT32_MAX ||
        limit > (buffer.len - INDEX_HEADER_BYTES - 4 * slots) / INDEX_ENTRY_BYTES) {
        result = Py_NewRef(Py_None);
    } else {
        unsigned char *data = buffer.buf;
        const unsigned char *item = (const unsigned char *)items.buf + ITEM_BYTES * start;
        Py_ssize_t taken = 0, used = 0;
        for (; start + taken < total && first + taken < limit; taken++) {
            uint32_t hash;
            int64_t offset, timestamp;
            memcpy(&hash, item, 4);
            memcpy(&offset, item + 4, 8);
            memcpy(&timestamp, item + 12, 8);
            used += put_entry(data, slots, first + taken, hash, offset, seconds_between(begin_ms, timestamp));
            item += ITEM_BYTES;
        }
        result = Py_BuildValue("(nn)", taken, used);
    }
    PyBuffer_Release(&items);
    PyBuffer_Release(&buffer);
    return result;
}

/* same_entries(data, position, end, items) -> whether the entries there begin with those hashes and offsets, or None */
static PyObject *same_entries(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    Py_ssize_t position, end;
    Py_buffer data, items;
    if (count != 4 || !size_number(args[1], &position) || !size_number(args[2], &end) ||
        !get_buffer(args[0], &data, PyBUF_SIMPLE))
        Py_RETURN_NONE;
    if (!get_buffer(args[3], &items, PyBUF_SIMPLE)) {
        PyBuffer_Release(&data);
        Py_RETURN_NONE;
    }
    if (end > data.len)
        end = data.len;
    Py_ssize_t total = items.len / ITEM_BYTES;
    int is_same = position >= 0 && end >= position && total <= (end - position) / INDEX_ENTRY_BYTES;
    const unsigned char *item = items.buf;
    for (Py_ssize_t i = 0; is_same && i < total; i++, item += ITEM_BYTES) {
        const unsigned char *entry = (const unsigned char *)data.buf + position + i * INDEX_ENTRY_BYTES;
        uint32_t hash;
        uint64_t offset;
        memcpy(&hash, item, 4);
        memcpy(&offset, item + 4, 8);
        is_same = get_32(entry) == hash && get_64(entry + 4) == offset;
    }
    PyBuffer_Release(&items);
    PyBuffer_Release(&data);
    return PyBool_FromLong(is_same);
}

/* whole_records(buffer, largest) -> bytes of whole records at its beginning, or None where it begins with no record */
static PyObject *whole_records(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    Py_ssize_t largest;
    Py_buffer buffer;
    if (count != 2 || !size_number(args[1], &largest) || !get_buffer(args[0], &buffer, PyBUF_SIMPLE))
        Py_RETURN_NONE;
    const unsigned char *data = buffer.buf;
    Py_ssize_t position = 0;
    int32_t size = 1;
    while (buffer.len - position >= 4) {
        size = (int32_t)get_32(data + position);
        if (size <= 0 || size > largest || size > buffer.len - position)
            break;
        position += size;
    }
    PyBuffer_Release(&buffer);
    if (position == 0 && (size <= 0 || size > largest))
        Py_RETURN_NONE;
    return PyLong_FromSsize_t(position);
}

PyMethodDef blocks_methods[] = {
    {"scan_block", (PyCFunction)(void (*)(void))scan_block, METH_FASTCALL, NULL},
    {"put_index", (PyCFunction)(void (*)(void))put_index, METH_FASTCALL, NULL},
    {"same_entries", (PyCFunction)(void (*)(void))same_entries, METH_FASTCALL, NULL},
    {"whole_records", (PyCFunction)(void (*)(void))whole_records, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};
