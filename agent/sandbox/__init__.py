"""Programs and parsers that nobody vouches for, run where they can do no harm.

How a tool uses it. The run's `ToolContext.isolation` (an `Isolation`, agent/sandbox/ladder.py) finds out at first use
what protects on this machine, and hands over a `Sandbox`:

    sandbox = context.isolation.sandbox()                      # raises SandboxError("no_sandbox", ...)
    done = sandbox.run(Command(("rg", "-F", "-e", text, "--", "."), workspace=folder, read_only=True))
    if done.ended == "exit" and done.code == 0: ...            # done.output: bytes, bounded, of a hostile program

A parser of foreign bytes is a module of our own with a function `parse(request, data)`; it is run in there by

    answer = parsed(sandbox, "agent.tools.parsers.pdf_text", {"pages": 3}, pdf_bytes)   # raises SandboxError

(agent/sandbox/parsing.py). SandboxError carries an error_type and words for the model: a tool makes a ToolError of it.
"""
