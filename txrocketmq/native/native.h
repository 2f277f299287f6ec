/* What the C sources of the extension share. Each source file answers one question, gives a table of its functions and, where it
 * keeps something, a function that makes it ready; module.c lists both.
 *
 * Rules:
 * - A function does the ordinary case and returns None for everything else (other types, numbers out of range, too little room), so that
 *   its pure twin, which the caller then asks, is the one place that knows errors and rare cases.
 * - Nothing is read or written before its bounds are checked, and sums of numbers that came from outside are made of bounded ones.
 * - Numbers are taken with number(), buffers with get_buffer(): neither runs code of the argument's type.
 * - What can run Python code (a callback, looking into a dict) may change everything that is not held: references are taken before, and
 *   a length is read from a buffer once.
 * - What is kept between calls is in State, one for each interpreter. */
#ifndef TXROCKETMQ_NATIVE_H
#define TXROCKETMQ_NATIVE_H

#define PY_SSIZE_T_CLEAN
/* One build serves CPython 3.11 and all later ones. */
#define Py_LIMITED_API 0x030B0000
#include <Python.h>
#include <stdint.h>
#include <string.h>

#define LIKELY(x) __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)

/* Big-endian numbers at any address. */
static inline void put_16(unsigned char *at, uint16_t value)
{
    value = __builtin_bswap16(value);
    memcpy(at, &value, 2);
}

static inline void put_32(unsigned char *at, uint32_t value)
{
    value = __builtin_bswap32(value);
    memcpy(at, &value, 4);
}

static inline void put_64(unsigned char *at, uint64_t value)
{
    value = __builtin_bswap64(value);
    memcpy(at, &value, 8);
}

static inline uint16_t get_16(const unsigned char *at)
{
    uint16_t value;
    memcpy(&value, at, 2);
    return __builtin_bswap16(value);
}

static inline uint32_t get_32(const unsigned char *at)
{
    uint32_t value;
    memcpy(&value, at, 4);
    return __builtin_bswap32(value);
}

static inline uint64_t get_64(const unsigned char *at)
{
    uint64_t value;
    memcpy(&value, at, 8);
    return __builtin_bswap64(value);
}

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "big-endian processors run the pure Python code"
#endif

/* A whole number that fits; 0, without an exception, for anything else. */
static inline int number(PyObject *object, long long *value)
{
    if (UNLIKELY(!PyLong_CheckExact(object) && !PyLong_Check(object)))
        return 0;
    *value = PyLong_AsLongLong(object);
    if (UNLIKELY(*value == -1 && PyErr_Occurred() != NULL)) {
        PyErr_Clear();
        return 0;
    }
    return 1;
}

/* The same for places in memory. */
static inline int size_number(PyObject *object, Py_ssize_t *value)
{
    long long found;
    if (!number(object, &found) || found < PY_SSIZE_T_MIN || found > PY_SSIZE_T_MAX)
        return 0;
    *value = (Py_ssize_t)found;
    return 1;
}

/* One stretch of bytes, which PyBuffer_Release gives back; 0, without an exception, for anything else. */
static inline int get_buffer(PyObject *object, Py_buffer *buffer, int flags)
{
    if (UNLIKELY(PyObject_GetBuffer(object, buffer, flags | PyBUF_ND) < 0)) {
        PyErr_Clear();
        return 0;
    }
    if (UNLIKELY(buffer->ndim != 1 || buffer->itemsize != 1)) {
        PyBuffer_Release(buffer);
        return 0;
    }
    return 1;
}

/* What the extension keeps: references, any of which may be NULL. */
enum {
    KNOWN_HOSTS,
    KNOWN_TOPICS,
    CRC32,
    LAST_BORN_HOST,
    LAST_BORN_BYTES,
    LAST_STORE_HOST,
    LAST_STORE_BYTES,
    UNIQ_KEY_NAME,
    KEPT,
};

typedef struct {
    PyObject *kept[KEPT];
} State;

static inline State *state_of(PyObject *module)
{
    return PyModule_GetState(module);
}

/* Keeps something instead of what was kept there; giving that back may run any code, so nothing borrowed may be in use. */
static inline void keep(State *state, int place, PyObject *object)
{
    PyObject *before = state->kept[place];
    state->kept[place] = Py_XNewRef(object);
    Py_XDECREF(before);
}

/* blocks.c: stretches of the log. */
extern PyMethodDef blocks_methods[];

/* An ASCII text's characters, which belong to the text; NULL, without an exception, for anything else. */
static inline const unsigned char *ascii(PyObject *text, Py_ssize_t *size)
{
    if (!PyUnicode_Check(text))
        return NULL;
    const char *found = PyUnicode_AsUTF8AndSize(text, size);
    if (found == NULL) {
        PyErr_Clear();
        return NULL;
    }
    return *size == PyUnicode_GetLength(text) ? (const unsigned char *)found : NULL;
}

/* Java's hash of a text that begins with one that has this hash. */
static inline uint32_t hash_on(uint32_t hash, const unsigned char *text, Py_ssize_t size)
{
    for (Py_ssize_t i = 0; i < size; i++)
        hash = 31 * hash + text[i];
    return hash;
}

/* What the index keeps of a hash. */
static inline int32_t index_form(uint32_t hash)
{
    if (hash & 0x80000000u)
        hash = 0u - hash;
    /* The smallest number has no absolute value. */
    return hash == 0x80000000u ? 0 : (int32_t)hash;
}

enum {
    INDEX_HEADER_BYTES = 40,
    INDEX_SLOT_BYTES = 4,
    INDEX_ENTRY_BYTES = 20,
};

/* Writes an index entry, for which the caller has found room, and makes it the first of its slot's chain; 1 where the slot was empty. */
static inline int put_entry(unsigned char *data, int64_t slots, int64_t number, uint32_t hash, int64_t offset, uint32_t seconds)
{
    unsigned char *slot = data + INDEX_HEADER_BYTES + INDEX_SLOT_BYTES * (int64_t)((hash & 0x7FFFFFFFu) % (uint64_t)slots);
    unsigned char *entry = data + INDEX_HEADER_BYTES + INDEX_SLOT_BYTES * slots + INDEX_ENTRY_BYTES * number;
    int32_t older = (int32_t)get_32(slot);
    int was_empty = older <= 0 || older > number;
    put_32(entry, hash);
    put_64(entry + 4, (uint64_t)offset);
    put_32(entry + 12, seconds);
    put_32(entry + 16, was_empty ? 0 : (uint32_t)older);
    put_32(slot, (uint32_t)number);
    return was_empty;
}

/* hashes.c: Java's hashes, and index entries. */
extern PyMethodDef hashes_methods[];

/* record.c: records into the log's mapping. */
extern PyMethodDef record_methods[];

/* sends.c: texts of messages that are sent. */
extern PyMethodDef sends_methods[];
int sends_setup(PyObject *module);

#endif
