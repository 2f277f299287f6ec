"""``python -m txrocketmq`` is the command ``txrocketmq``."""

from txrocketmq.cli.main import main

if __name__ == "__main__":
    main(prog_name="txrocketmq")
