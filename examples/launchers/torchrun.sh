#!/usr/bin/env bash
# HOST=a examples/launchers/torchrun.sh 0 [argument of train.py ...], and with 1 on the second machine.
# HOST is the first machine's address. A rank that dies costs a restart of all; they go on from the checkpoint.
set -euo pipefail
node=$1
shift

# torchrun looks up the own host's name to find its address, and to see whether it is HOST. Where that name stands for
# 127.0.1.1, as on Debian, or for nothing, these two options say it.
address=$(ip -4 -oneline route get "${HOST:?give the address of the first machine}" | sed 's/.* src \([^ ]*\).*/\1/')
here=$([ "$node" = 0 ] && echo true || echo false)

exec python -m torch.distributed.run --nnodes 2 --nproc-per-node 2 --max-restarts 3 \
  --rdzv-backend c10d --rdzv-endpoint "$HOST:${PORT:-29400}" --rdzv-id "${JOB:-fairring}" \
  --rdzv-conf "is_host=$here" --local-addr "$address" \
  "$(dirname "$0")/train.py" "$@"
