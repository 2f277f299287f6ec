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

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_native",
    .m_doc = "Compiled twins of functions of the hot paths; see txrocketmq.native.",
    .m_size = -1,
};

PyMODINIT_FUNC PyInit__native(void)
{
    PyObject *module = PyModule_Create(&definition);
    if (module == NULL)
        return NULL;
    for (size_t i = 0; i < COUNT(TABLES); i++)
        if (PyModule_AddFunctions(module, TABLES[i]) < 0)
            goto failed;
    for (size_t i = 0; i < COUNT(SETUPS); i++)
        if (SETUPS[i](module) < 0)
            goto failed;
    if (PyModule_AddIntConstant(module, "SOURCES", SOURCES_CRC) < 0)
        goto failed;
    return module;
failed:
    Py_DECREF(module);
    return NULL;
}
