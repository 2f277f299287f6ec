"""The Python side of the proof against the official Java software.

`ports` reserves ports, `jvm` starts Java processes and limits their number, `puppet` speaks to one, `clients` are the Java
producers and consumers inside a puppet, `cluster` runs name servers and a broker of either make behind one interface, `checks`
says what must hold for what came in, `columns` which combinations are run, at which counts.
"""
