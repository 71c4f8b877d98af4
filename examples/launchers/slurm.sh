#!/usr/bin/env bash
# sbatch examples/launchers/slurm.sh [argument of train.py ...]: one task of Slurm is one rank.
#SBATCH --job-name=fairring
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=2
#SBATCH --cpus-per-task=1
#SBATCH --time=00:10:00
set -euo pipefail

# Rank 0 is on the job's first node. Set MASTER_ADDR before sbatch where nodes don't know each other by Slurm's names.
first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
port=$((20000 + SLURM_JOB_ID % 10000)) # jobs that share a node take different ones
export MASTER_ADDR=${MASTER_ADDR:-$first} MASTER_PORT=${MASTER_PORT:-$port} OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK

# The program's path starts where sbatch was called.

srun --kill-on-bad-exit=1 bash -c '
  export RANK=$SLURM_PROCID WORLD_SIZE=$SLURM_NTASKS LOCAL_RANK=$SLURM_LOCALID GROUP_RANK=$SLURM_NODEID
  exec python examples/launchers/train.py "$@"' rank "$@"
