#!/bin/sh
# Runs the image's command after one check that saves a puzzle: results are written into a folder of the host, and
# a container's user that may not write there would find out only at the end of its first run.
set -eu

if [ ! -w /app/traces ]; then
  owner=$(stat -c '%u:%g' /app/traces)
  echo "docker: traces/ belongs to $owner and this container runs as $(id -u):$(id -g):" \
    "put UID=${owner%:*} and GID=${owner#*:} into .env, or export them" >&2
  exit 2
fi

exec "$@"
