/* The collectives of `fairring bench` in MPI, measured much as there: in each round calls follow a barrier, one, or
 * up to 64 KiB 40 whose time is divided by 40, and a round's time is that of its slowest rank. Sizes are of what a rank
 * has for the whole. Rank 0 prints a line of JSON for each collective and size.
 *
 *   mpirun ... collectives ROUNDS BYTES... */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { kUncounted = 2, kSmallBytes = 1 << 16, kCallsInARow = 40 };

static int rank, world, elements;             /* of one rank's block */
static float *block, *part, *whole, *stacked; /* the last two of world blocks */

static void fill(float* values, int count, float value) {
  for (int i = 0; i < count; ++i) values[i] = value;
}

static long differ(const float* values, int count, float value) {
  long wrong = 0;
  for (int i = 0; i < count; ++i) wrong += values[i] != value;
  return wrong;
}

static long differFromEveryones(const float* values) {
  long wrong = 0;
  for (int r = 0; r < world; ++r) wrong += differ(values + (long)r * elements, elements, (float)r);
  return wrong;
}

static void allGather(void) { MPI_Allgather(block, elements, MPI_FLOAT, stacked, elements, MPI_FLOAT, MPI_COMM_WORLD); }
static long allGathered(void) { return differFromEveryones(stacked); }

static void reduceScatter(void) { MPI_Reduce_scatter_block(whole, part, elements, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); }
static long reduceScattered(void) { return differ(part, elements, (float)(rank * world)); }

static void broadcast(void) {
  fill(stacked, world * elements, (float)(rank + 1));
  MPI_Bcast(stacked, world * elements, MPI_FLOAT, 0, MPI_COMM_WORLD);
}
static long wasBroadcast(void) { return differ(stacked, world * elements, 1); }

static void reduce(void) {
  fill(stacked, world * elements, 1);
  MPI_Reduce(rank == 0 ? MPI_IN_PLACE : stacked, stacked, world * elements, MPI_FLOAT, MPI_SUM, 0, MPI_COMM_WORLD);
}
static long reduced(void) { return rank == 0 ? differ(stacked, world * elements, (float)world) : 0; }

static void gather(void) { MPI_Gather(block, elements, MPI_FLOAT, stacked, elements, MPI_FLOAT, 0, MPI_COMM_WORLD); }
static long gathered(void) { return rank == 0 ? differFromEveryones(stacked) : 0; }

static void scatter(void) { MPI_Scatter(whole, elements, MPI_FLOAT, part, elements, MPI_FLOAT, 0, MPI_COMM_WORLD); }
static long scattered(void) { return differ(part, elements, (float)rank); }

static void allToAll(void) { MPI_Alltoall(whole, elements, MPI_FLOAT, stacked, elements, MPI_FLOAT, MPI_COMM_WORLD); }
static long exchanged(void) { return differ(stacked, world * elements, (float)rank); }

static void pingPong(void) {
  const int other = rank == 0 ? world - 1 : 0;
  if (rank != 0 && rank != world - 1) return;
  if (rank == 0) MPI_Send(whole, world * elements, MPI_FLOAT, other, 0, MPI_COMM_WORLD);
  MPI_Recv(stacked, world * elements, MPI_FLOAT, other, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  if (rank != 0) MPI_Send(whole, world * elements, MPI_FLOAT, other, 0, MPI_COMM_WORLD);
}
static long pingPonged(void) { return rank == 0 || rank == world - 1 ? differFromEveryones(stacked) : 0; }

static void barrier(void) { MPI_Barrier(MPI_COMM_WORLD); }
static long passed(void) { return 0; }

static const struct {
  const char* name;
  void (*call)(void);
  long (*wrong)(void);
} kCollectives[] = {
    {"all_gather_into_tensor", allGather, allGathered},
    {"reduce_scatter_tensor", reduceScatter, reduceScattered},
    {"broadcast", broadcast, wasBroadcast},
    {"reduce", reduce, reduced},
    {"gather", gather, gathered},
    {"scatter", scatter, scattered},
    {"all_to_all_single", allToAll, exchanged},
    {"send and recv", pingPong, pingPonged},
    {"barrier", barrier, passed},
};

static int byValue(const void* a, const void* b) {
  const double difference = *(const double*)a - *(const double*)b;
  return difference > 0 ? 1 : difference < 0 ? -1 : 0;
}

static void measure(int which, int bytes, int rounds) {
  const int calls = bytes <= kSmallBytes ? kCallsInARow : 1;
  double* slowest = malloc(sizeof(double) * (size_t)rounds);
  long wrong = 0;
  for (int round = -kUncounted; round < rounds; ++round) {
    MPI_Barrier(MPI_COMM_WORLD);
    const double begin = MPI_Wtime();
    for (int call = 0; call < calls; ++call) kCollectives[which].call();
    const double mine = (MPI_Wtime() - begin) / calls;
    wrong += kCollectives[which].wrong();
    double most = 0;
    MPI_Allreduce(&mine, &most, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    if (round >= 0) slowest[round] = most;
  }
  long allWrong = 0;
  MPI_Reduce(&wrong, &allWrong, 1, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
  qsort(slowest, (size_t)rounds, sizeof(double), byValue);
  if (rank == 0) {
    printf(
        "{\"collective\": \"%s\", \"bytes\": %d, \"ms\": %.4f, \"least_ms\": %.4f, \"most_ms\": %.4f, \"wrong\": "
        "%ld}\n",
        kCollectives[which].name, bytes, 1e3 * slowest[(rounds - 1) / 2], 1e3 * slowest[0], 1e3 * slowest[rounds - 1],
        allWrong);
    fflush(stdout);
  }
  free(slowest);
}

int main(int count, char** arguments) {
  MPI_Init(&count, &arguments);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &world);
  const int rounds = count > 1 ? atoi(arguments[1]) : 0;
  for (int i = 2; i < count; ++i) {
    const int bytes = atoi(arguments[i]);
    elements = bytes / (int)sizeof(float) / world;
    if (elements < 1) elements = 1;
    const size_t blockBytes = sizeof(float) * (size_t)elements;
    block = malloc(blockBytes);
    part = malloc(blockBytes);
    whole = malloc(blockBytes * (size_t)world);
    stacked = malloc(blockBytes * (size_t)world);
    fill(block, elements, (float)rank);
    for (int r = 0; r < world; ++r) fill(whole + (long)r * elements, elements, (float)r);
    for (int which = 0; which < (int)(sizeof(kCollectives) / sizeof(kCollectives[0])); ++which)
      measure(which, bytes, rounds);
    free(block);
    free(part);
    free(whole);
    free(stacked);
  }
  MPI_Finalize();
  return 0;
}
