/* all_reduce_perf for machines without a GPU: a real MPI all-reduce with the command line and the table of nccl-tests.
 *
 * One MPI rank stands for one GPU. Which algorithm sums is Open MPI's choice, so whoever starts it asks for the ring, as NCCL uses
 * it: mpirun --mca coll_libnbc_iallreduce_algorithm 1. Ranks sleep while they wait: with more of them than cores, those that spin,
 * as Open MPI's own waiting does, keep the others from their messages, and the processor is measured and not the links.
 */
#define _DEFAULT_SOURCE
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LOOK_US 50 /* sleep between looks whether a sum is complete */
#define PATTERN 1024 /* values repeat after so many: every sum stays exact in a float */

struct options {
    size_t min_bytes, max_bytes;
    int factor, gpus, iterations, warm_up, check;
};

struct side {
    double micros, algbw, busbw;
    long wrong;
};

static int rank, ranks;

static size_t bytes_of(const char *text) {
    char *end;
    size_t number = strtoull(text, &end, 10);
    switch (*end) {
    case 'K': case 'k': return number << 10;
    case 'M': case 'm': return number << 20;
    case 'G': case 'g': return number << 30;
    default: return number;
    }
}

static struct options read_options(int count, char **words) {
    struct options found = {32u << 20, 32u << 20, 2, 1, 20, 5, 1};
    int letter;
    while ((letter = getopt(count, words, "b:e:f:g:n:w:c:")) != -1) {
        switch (letter) {
        case 'b': found.min_bytes = bytes_of(optarg); break;
        case 'e': found.max_bytes = bytes_of(optarg); break;
        case 'f': found.factor = atoi(optarg); break;
        case 'g': found.gpus = atoi(optarg); break;
        case 'n': found.iterations = atoi(optarg); break;
        case 'w': found.warm_up = atoi(optarg); break;
        case 'c': found.check = atoi(optarg); break;
        default: MPI_Abort(MPI_COMM_WORLD, 1);
        }
    }
    if (found.factor < 2 || found.iterations < 1 || found.gpus != 1 || found.min_bytes < 4 || found.min_bytes > found.max_bytes) {
        if (rank == 0)
            fprintf(stderr, "all_reduce_perf: invalid arguments\n");
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    return found;
}

static void fill(float *values, size_t count) {
    for (size_t at = 0; at < count; at++)
        values[at] = (float)(at % PATTERN + rank);
}

static long count_wrong(const float *values, size_t count) {
    long wrong = 0, all = 0;
    for (size_t at = 0; at < count; at++)
        wrong += values[at] != (float)(ranks * (at % PATTERN) + ranks * (ranks - 1) / 2);
    MPI_Allreduce(&wrong, &all, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    return all;
}

static void sum(float *from, float *into, size_t count, int in_place) {
    MPI_Request request;
    int done = 0;
    MPI_Iallreduce(in_place ? MPI_IN_PLACE : from, into, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD, &request);
    for (MPI_Test(&request, &done, MPI_STATUS_IGNORE); !done; MPI_Test(&request, &done, MPI_STATUS_IGNORE))
        usleep(LOOK_US);
}

static struct side measure(const struct options *want, float *from, float *into, size_t count, int in_place) {
    struct side seen = {0};
    double mine, total;
    for (int round = 0; round < want->warm_up; round++)
        sum(from, into, count, in_place);
    MPI_Barrier(MPI_COMM_WORLD);
    mine = MPI_Wtime();
    for (int round = 0; round < want->iterations; round++)
        sum(from, into, count, in_place);
    mine = MPI_Wtime() - mine;
    MPI_Allreduce(&mine, &total, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    seen.micros = total / ranks / want->iterations * 1e6;
    seen.algbw = count * sizeof(float) / seen.micros / 1e3;
    seen.busbw = seen.algbw * 2 * (ranks - 1) / ranks;
    if (want->check) { /* what was timed has summed sums, so the values are made anew */
        fill(in_place ? into : from, count);
        sum(from, into, count, in_place);
        seen.wrong = count_wrong(into, count);
    }
    return seen;
}

static void print_header(const struct options *want) {
    char mine[64] = {0}, host[48] = {0}, *all = malloc((size_t)ranks * sizeof mine);
    gethostname(host, sizeof host - 1);
    snprintf(mine, sizeof mine, "%6d on %10s", (int)getpid(), host);
    MPI_Gather(mine, sizeof mine, MPI_CHAR, all, sizeof mine, MPI_CHAR, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        printf("# nThread 1 nGpus %d minBytes %zu maxBytes %zu step: %d(factor) warmup iters: %d iters: %d agg iters: 1 "
               "validation: %d graph: 0\n#\n# Using devices\n",
               want->gpus, want->min_bytes, want->max_bytes, want->factor, want->warm_up, want->iterations, want->check);
        for (int one = 0; one < ranks; one++)
            printf("#  Rank %2d Group  0 Pid %s device  0 [0x00] CPU over TCP\n", one, all + (size_t)one * sizeof mine);
        printf("#\n"
               "#                                                              out-of-place                       in-place          \n"
               "#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong\n"
               "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)       \n");
        fflush(stdout);
    }
    free(all);
}

static void print_side(const struct side *seen) {
    const char *format = seen->micros >= 10000 ? "  %7.0f" : seen->micros >= 100 ? "  %7.1f" : "  %7.2f";
    printf(format, seen->micros);
    printf("  %6.2f  %6.2f  %5ld", seen->algbw, seen->busbw, seen->wrong);
}

int main(int count, char **words) {
    MPI_Init(&count, &words);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    struct options want = read_options(count, words);
    float *from = malloc(want.max_bytes), *into = malloc(want.max_bytes);
    if (from == NULL || into == NULL) {
        fprintf(stderr, "all_reduce_perf: no memory for %zu bytes\n", want.max_bytes);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    print_header(&want);
    double busbw = 0;
    long wrong = 0, sizes = 0;
    for (size_t size = want.min_bytes; size <= want.max_bytes; size *= want.factor, sizes++) {
        size_t values = size / sizeof(float);
        fill(from, values);
        fill(into, values);
        struct side apart = measure(&want, from, into, values, 0), same = measure(&want, from, into, values, 1);
        if (rank == 0) {
            printf("%12zu  %12zu     float     sum      -1", size, values);
            print_side(&apart);
            print_side(&same);
            printf("\n");
            fflush(stdout);
        }
        busbw += apart.busbw + same.busbw;
        wrong += apart.wrong + same.wrong;
    }
    if (rank == 0)
        printf("# Out of bounds values : %ld %s\n# Avg bus bandwidth    : %g \n#\n", wrong, wrong ? "FAILED" : "OK", busbw / (2 * sizes));
    MPI_Finalize();
    return wrong ? 1 : 0;
}
