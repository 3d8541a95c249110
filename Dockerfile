# The base is pinned by tag. To pin its bytes as well, add the digest that `docker buildx imagetools inspect
# python:3.11-slim-bookworm` prints: python:3.11-slim-bookworm@sha256:...
FROM python:3.11-slim-bookworm AS build

WORKDIR /app
RUN python3 -m venv /opt/venv
COPY requirements.txt ./
RUN /opt/venv/bin/python -m pip install --no-cache-dir --disable-pip-version-check \
        --require-hashes --only-binary :all: -r requirements.txt \
    && /opt/venv/bin/python -m pip check
# Before the sources: the model's 98 MB are fetched again only when the script that names them changes.
COPY scripts/fetch_model.py scripts/
RUN /opt/venv/bin/python scripts/fetch_model.py --dest /app/models


FROM python:3.11-slim-bookworm

# The OpenMP runtime that llama.cpp is linked with, which slim images leave out, and what search_codebase runs. Programs
# are isolated by landlock: bubblewrap needs a capability that containers have not.
RUN apt-get update \
    && apt-get install -y --no-install-recommends libgomp1 ripgrep \
    && rm -rf /var/lib/apt/lists/*

COPY --from=build /opt/venv /opt/venv
WORKDIR /app
COPY --from=build /app/models models
COPY . .
# A checkout made under a strict umask would be unreadable to the user below; and it may write no byte code.
RUN find . ! -perm -444 -exec chmod a+rX {} + \
    && /opt/venv/bin/python -m compileall -q . \
    && mkdir -p traces && chown 1000:1000 traces

# HOME is a place that any UID may write to: compose runs the image as the host's user, who has no home in it.
ENV PATH=/opt/venv/bin:$PATH \
    HOME=/tmp \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1

USER 1000:1000
STOPSIGNAL SIGINT
ENTRYPOINT ["/app/scripts/docker_entrypoint.sh"]
# The report goes inside traces/, the only folder that is mounted: renaming over a bind-mounted file fails.
CMD ["python", "run_tests.py", "suites/core.yaml", "--report", "traces/test_results.md"]
