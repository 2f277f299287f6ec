/* How is Java's String.hashCode of a text computed? The twin of txrocketmq.model.javahash, for ASCII. */
#include "native.h"

/* An ASCII text's characters, NULL (without an exception) for anything else. They belong to the text. */
static const unsigned char *ascii(PyObject *text, Py_ssize_t *size)
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

static uint32_t add_to_hash(uint32_t hash, const unsigned char *text, Py_ssize_t size)
{
    for (Py_ssize_t i = 0; i < size; i++)
        hash = 31 * hash + text[i];
    return hash;
}

/* index_hash(topic, key) -> number, or None */
static PyObject *index_hash(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    Py_ssize_t topic_size, key_size;
    const unsigned char *topic, *key;
    if (count != 2 || (topic = ascii(args[0], &topic_size)) == NULL || (key = ascii(args[1], &key_size)) == NULL)
        Py_RETURN_NONE;
    uint32_t hash = add_to_hash(0, topic, topic_size);
    hash = add_to_hash(31 * hash + '#', key, key_size);
    if (hash & 0x80000000u)
        hash = 0u - hash;
    /* The smallest number has no absolute value. */
    return PyLong_FromLong(hash == 0x80000000u ? 0 : (long)hash);
}

PyMethodDef hashes_methods[] = {
    {"index_hash", (PyCFunction)(void (*)(void))index_hash, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};
