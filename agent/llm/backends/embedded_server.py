"""The child process of the embedded backend: llama.cpp serving one model on loopback until its standard input closes.

A process of its own, because llama.cpp's server holds Python's lock while it loads and stops (stopping it with a
request under way never returned), because its log goes to standard error, and because a process can be ended. It
reads one JSON line of settings, prints one JSON line with its address or its failure, and ends with its parent: a
killed parent closes the pipe too.

Run as a script, without this project on its path: it imports nothing of it.
"""

from __future__ import annotations

import json
import os
import sys


def main() -> None:
    """Serve until standard input ends."""
    settings = json.loads(sys.stdin.readline())
    try:
        import xllamacpp  # noqa: PLC0415  # a missing package is reported like any other failure to start

        params = xllamacpp.CommonParams()
        params.model.path = settings["model_path"]
        params.model_alias = {settings["alias"]}  # a plain text is taken letter by letter
        params.hostnames = ["127.0.0.1"]
        params.port = 0
        params.n_ctx = settings["num_ctx"]
        # One conversation after the other, each with the whole window. What a request takes the place of is kept in
        # memory, always: by its default the server lets go of the end of a prompt that has half of the next one's head.
        params.n_parallel = 1
        params.slot_prompt_similarity = 0.0
        params.cache_ram_mib = settings["cache_mib"]
        params.cpuparams.n_threads = settings["threads"]
        params.cpuparams_batch.n_threads = settings["threads"]
        params.ui = False
        params.verbosity = 2  # warnings and errors
        params.api_keys = [settings["key"]]
        params.cors_origins = "http://127.0.0.1"  # its default admits any page that a browser has open
        server = xllamacpp.Server(params)
        ready = {"url": server.listening_address, "version": xllamacpp.__version__}
    except (ImportError, RuntimeError, AttributeError, ValueError) as error:
        ready = {"error": f"{type(error).__name__}: {error}"}
    sys.stdout.write(json.dumps(ready) + "\n")
    sys.stdout.flush()
    if "url" in ready:
        sys.stdin.read()
    os._exit(0)  # destroying the server waits for requests that nobody reads any more


if __name__ == "__main__":
    main()
