/* Which functions does the extension have? Those of the other source files; and which sources it was made of. */
#include "native.h"

/* A new source file: its table here, and in SETUPS what it has to make ready, if anything. */
static PyMethodDef *const TABLES[] = {
    blocks_methods,
    hashes_methods,
    record_methods,
    sends_methods,
};

static int (*const SETUPS[])(PyObject *module) = {
    sends_setup,
};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static int set_up(PyObject *module)
{
    for (size_t i = 0; i < COUNT(TABLES); i++)
        if (PyModule_AddFunctions(module, TABLES[i]) < 0)
            return -1;
    for (size_t i = 0; i < COUNT(SETUPS); i++)
        if (SETUPS[i](module) < 0)
            return -1;
    return PyModule_AddIntConstant(module, "SOURCES", SOURCES_CRC);
}

static int traverse(PyObject *module, visitproc visit, void *arg)
{
    State *state = state_of(module);
    for (int i = 0; state != NULL && i < KEPT; i++)
        Py_VISIT(state->kept[i]);
    return 0;
}

static int clear(PyObject *module)
{
    State *state = state_of(module);
    for (int i = 0; state != NULL && i < KEPT; i++)
        keep(state, i, NULL);
    return 0;
}

static void release(void *module)
{
    clear(module);
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, set_up},
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_native",
    .m_doc = "Compiled twins of functions of the hot paths; see txrocketmq.native.",
    .m_size = sizeof(State),
    .m_slots = slots,
    .m_traverse = traverse,
    .m_clear = clear,
    .m_free = release,
};

PyMODINIT_FUNC PyInit__native(void)
{
    return PyModuleDef_Init(&definition);
}
