#!/usr/bin/env bash
# mpirun -np 4 --host a:2,b:2 -x MASTER_ADDR=a examples/launchers/mpirun.sh [argument of train.py ...]
# mpirun starts this once for each rank and tells it its place; MPI carries none of the data.
set -euo pipefail
: "${MASTER_ADDR:?give the machine of rank 0: mpirun -x MASTER_ADDR=...}"
export MASTER_ADDR MASTER_PORT=${MASTER_PORT:-29500} OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
export RANK=$OMPI_COMM_WORLD_RANK WORLD_SIZE=$OMPI_COMM_WORLD_SIZE
export LOCAL_RANK=$OMPI_COMM_WORLD_LOCAL_RANK LOCAL_WORLD_SIZE=$OMPI_COMM_WORLD_LOCAL_SIZE
exec python "$(dirname "$0")/train.py" "$@"
