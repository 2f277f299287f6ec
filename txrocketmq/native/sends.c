/* What is made of texts for each message that is sent? The twins of PropertyWriter.prepare and of encode_reply's usual success. */
#include "native.h"

/* Adds one property; 0 where the text is not a plain one, -1 with an exception. */
static int add_property(PyObject *found, PyObject *noteworthy, const char *item, const char *end)
{
    const char *middle = memchr(item, 1, (size_t)(end - item));
    if (middle == NULL || middle == item || middle + 1 == end)
        return 0;
    PyObject *name = PyUnicode_DecodeUTF8(item, middle - item, "strict"), *value = NULL;
    int result = -1;
    if (name == NULL || (value = PyUnicode_DecodeUTF8(middle + 1, end - middle - 1, "strict")) == NULL)
        goto done;
    int is_noteworthy = PySet_Contains(noteworthy, name);
    if (is_noteworthy != 0) {
        result = is_noteworthy < 0 ? -1 : 0;
        goto done;
    }
    result = PyDict_SetItem(found, name, value) < 0 ? -1 : 1;
done:
    Py_XDECREF(name);
    Py_XDECREF(value);
    return result;
}

/* A tuple of a class, as the class of all tuples makes it. */
static PyObject *tuple_of(PyTypeObject *cls, PyObject *first, PyObject *second, PyObject *third, PyObject *fourth)
{
    newfunc make = (newfunc)PyType_GetSlot(&PyTuple_Type, Py_tp_new);
    PyObject *fields = PyTuple_Pack(4, first, second, third, fourth);
    PyObject *arguments = fields == NULL ? NULL : PyTuple_Pack(1, fields);
    PyObject *result = arguments == NULL ? NULL : make(cls, arguments, NULL);
    Py_XDECREF(arguments);
    Py_XDECREF(fields);
    return result;
}

/* prepare(text, noteworthy, suffix, cls) -> cls(bytes, map, unique id, False), or None
 *
 * Reads a property text none of whose entries is empty, repeated or noteworthy and one of which is UNIQ_KEY; the bytes are the text with
 * a separator at its end and the suffix. cls is a class of tuples. */
static PyObject *prepare(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    Py_ssize_t size;
    if (UNLIKELY(count != 4 || !PyUnicode_CheckExact(args[0]) || !PyAnySet_Check(args[1]) || !PyBytes_CheckExact(args[2]) ||
                 !PyType_Check(args[3]) || !PyType_IsSubtype((PyTypeObject *)args[3], &PyTuple_Type)))
        Py_RETURN_NONE;
    const char *text = PyUnicode_AsUTF8AndSize(args[0], &size);
    if (text == NULL) {
        PyErr_Clear();
        Py_RETURN_NONE;
    }
    PyObject *found = PyDict_New(), *stored = NULL, *result = NULL;
    if (found == NULL)
        return NULL;
    Py_ssize_t items = 0;
    const char *end = text + size, *at = text;
    while (at < end) {
        const char *stop = memchr(at, 2, (size_t)(end - at));
        int added = add_property(found, args[1], at, stop == NULL ? end : stop);
        if (added < 0)
            goto done;
        if (added == 0)
            goto other;
        items++;
        if (stop == NULL)
            break;
        at = stop + 1;
    }
    PyObject *name = state_of(module)->kept[UNIQ_KEY_NAME];
    PyObject *uniq_key = name == NULL ? NULL : PyDict_GetItemWithError(found, name);
    if (uniq_key == NULL || items != PyDict_Size(found)) {
        if (PyErr_Occurred())
            goto done;
        goto other;
    }
    Py_ssize_t separator = end[-1] != 2, suffix_size = PyBytes_Size(args[2]);
    stored = PyBytes_FromStringAndSize(NULL, size + separator + suffix_size);
    if (stored == NULL)
        goto done;
    char *fill = PyBytes_AsString(stored);
    memcpy(fill, text, (size_t)size);
    if (separator)
        fill[size] = 2;
    memcpy(fill + size + separator, PyBytes_AsString(args[2]), (size_t)suffix_size);
    result = tuple_of((PyTypeObject *)args[3], stored, found, uniq_key, Py_False);
    goto done;
other:
    Py_DECREF(found);
    Py_RETURN_NONE;
done:
    Py_XDECREF(stored);
    Py_DECREF(found);
    return result;
}

/* A frame that is put together. */
typedef struct {
    char *at, *end;
} Place;

static int put(Place *place, const char *text, Py_ssize_t size)
{
    if (size > place->end - place->at)
        return 0;
    memcpy(place->at, text, (size_t)size);
    place->at += size;
    return 1;
}

#define PUT(place, literal) put(place, literal, (Py_ssize_t)sizeof(literal) - 1)

static int put_text(Place *place, PyObject *text)
{
    Py_ssize_t size;
    if (!PyUnicode_Check(text))
        return 0;
    const char *found = PyUnicode_AsUTF8AndSize(text, &size);
    if (found == NULL) {
        PyErr_Clear();
        return 0;
    }
    return put(place, found, size);
}

/* A text in quotes, unless something in it would have to be escaped. */
static int put_quoted(Place *place, PyObject *text)
{
    if (!PUT(place, "\""))
        return 0;
    const char *start = place->at;
    if (!put_text(place, text))
        return 0;
    for (const char *each = start; each < place->at; each++)
        if ((unsigned char)*each < 0x20 || *each == '"' || *each == '\\')
            return 0;
    return PUT(place, "\"");
}

static int put_number(Place *place, long long number)
{
    char digits[24], *at = digits + sizeof digits;
    unsigned long long left = number < 0 ? 0ULL - (unsigned long long)number : (unsigned long long)number;
    do
        *--at = (char)('0' + left % 10);
    while ((left /= 10) != 0);
    if (number < 0)
        *--at = '-';
    return put(place, at, digits + sizeof digits - at);
}

enum { MOST_REPLY_BYTES = 4096 };

/* json_reply(code, members, fields, flag, middle, opaque, end, body bytes) -> the frame without its body, or None
 *
 * The members of extFields are JSON already; the fields, a dict of texts or None, follow them. */
static PyObject *json_reply(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    if (UNLIKELY(count != 8 || (args[2] != Py_None && !PyDict_CheckExact(args[2]))))
        Py_RETURN_NONE;
    long long code, flag, opaque, body_size;
    if (UNLIKELY(!number(args[0], &code) || !number(args[3], &flag) || !number(args[5], &opaque) ||
                 !number(args[7], &body_size)))
        Py_RETURN_NONE;
    if (body_size < 0 || body_size > INT32_MAX - MOST_REPLY_BYTES)
        Py_RETURN_NONE;
    char frame[MOST_REPLY_BYTES];
    Place place = {frame + 8, frame + sizeof frame};
    int fits = PUT(&place, "{\"code\":") && put_number(&place, code) && PUT(&place, ",\"extFields\":{");
    const char *members = place.at;
    fits = fits && put_text(&place, args[1]);
    if (fits && args[2] != Py_None) {
        Py_ssize_t position = 0;
        PyObject *name, *value;
        while (fits && PyDict_Next(args[2], &position, &name, &value))
            fits = (place.at == members || PUT(&place, ",")) && put_quoted(&place, name) && PUT(&place, ":") &&
                   put_quoted(&place, value);
    }
    fits = fits && PUT(&place, "},\"flag\":") && put_number(&place, flag) && put_text(&place, args[4]) &&
           put_number(&place, opaque) && put_text(&place, args[6]);
    if (!fits)
        Py_RETURN_NONE;
    Py_ssize_t head_size = place.at - frame - 8;
    put_32((unsigned char *)frame, (uint32_t)(4 + head_size + body_size));
    put_32((unsigned char *)frame + 4, (uint32_t)head_size);
    return PyBytes_FromStringAndSize(frame, place.at - frame);
}

int sends_setup(PyObject *module)
{
    PyObject **name = &state_of(module)->kept[UNIQ_KEY_NAME];
    *name = PyUnicode_InternFromString("UNIQ_KEY");
    return *name == NULL ? -1 : 0;
}

PyMethodDef sends_methods[] = {
    {"prepare", (PyCFunction)(void (*)(void))prepare, METH_FASTCALL, NULL},
    {"json_reply", (PyCFunction)(void (*)(void))json_reply, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};
