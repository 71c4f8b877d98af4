/* Small all-reduces of MPI, measured as benchmarks/cpp/race.h does: calls follow each other with nothing between but the
 * filling and the checking of the tensor; a call's time is that of its slowest rank; values are small integers, every
 * element is compared. Rank 0 prints a line of JSON for each size.
 *
 *   mpirun ... all_reduce NAME CALLS BYTES... */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { kPeriod = 13, kCallsOfBlock = 250, kWarmUp = 25 };

static int byValue(const void* a, const void* b) {
  const double difference = *(const double*)a - *(const double*)b;
  return difference > 0 ? 1 : difference < 0 ? -1 : 0;
}

static float valueAt(int element, int call, int rank) { return (float)((element + 3 * rank + call) % kPeriod); }

static long wrongOf(const float* tensor, int elements, int call, int world) {
  float sums[kPeriod];
  long wrong = 0;
  for (int i = 0; i < kPeriod; ++i) {
    sums[i] = 0;
    for (int rank = 0; rank < world; ++rank) sums[i] += valueAt(i, call, rank);
  }
  for (int i = 0; i < elements; ++i) wrong += tensor[i] != sums[i % kPeriod];
  return wrong;
}

/* Times of `calls` calls on this rank, the warm-up of each block left out. Returns how many elements were wrong. */
static long measure(double* seconds, int calls, int elements, int rank, int world) {
  float* tensor = malloc(sizeof(float) * (size_t)elements);
  long wrong = 0;
  for (int done = 0; done < calls; done += kCallsOfBlock) {
    MPI_Barrier(MPI_COMM_WORLD);
    for (int call = -kWarmUp; call < kCallsOfBlock; ++call) {
      for (int i = 0; i < elements; ++i) tensor[i] = valueAt(i, call + kWarmUp, rank);
      const double begin = MPI_Wtime();
      MPI_Allreduce(MPI_IN_PLACE, tensor, elements, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
      const double end = MPI_Wtime();
      wrong += wrongOf(tensor, elements, call + kWarmUp, world);
      if (call >= 0) seconds[done + call] = end - begin;
    }
  }
  free(tensor);
  return wrong;
}

int main(int count, char** arguments) {
  MPI_Init(&count, &arguments);
  int rank = 0;
  int world = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &world);
  const int calls = count > 2 ? (atoi(arguments[2]) + kCallsOfBlock - 1) / kCallsOfBlock * kCallsOfBlock : 0;
  double* seconds = malloc(sizeof(double) * (size_t)calls);
  double* slowest = malloc(sizeof(double) * (size_t)calls);
  for (int i = 3; i < count; ++i) {
    const int bytes = atoi(arguments[i]);
    const long mine = measure(seconds, calls, bytes / (int)sizeof(float), rank, world);
    long wrong = 0;
    MPI_Reduce(&mine, &wrong, 1, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
    MPI_Reduce(seconds, slowest, calls, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (rank != 0) continue;
    qsort(slowest, (size_t)calls, sizeof(double), byValue);
    printf("{\"bytes\": %d, \"contender\": \"%s\", \"calls\": %d, \"p50_us\": %.2f, \"p99_us\": %.2f, \"wrong\": %ld}\n",
           bytes, arguments[1], calls, 1e6 * slowest[(calls - 1) / 2], 1e6 * slowest[(calls - 1) * 99 / 100], wrong);
    fflush(stdout);
  }
  MPI_Finalize();
  return 0;
}
