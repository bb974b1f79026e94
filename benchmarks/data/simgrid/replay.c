/* Messages of a schedule, sent by MPI in SimGrid: every rank goes on as soon as its own are through.

   replay FILE: lines "step rank peer bytes", rank sends to peer in that step. All ranks begin at
   simulated time 0; the last to be done says when. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#define LARGEST (300L << 20)
#define AT_ONCE 4096

int main(int count, char **words)
{
    int rank, step = -1, now, from, to, open = 0;
    long bytes;
    double mine, last;
    MPI_Request request[AT_ONCE];
    static char *out, *in; /* shared by all ranks: nobody looks at what is sent */

    MPI_Init(&count, &words);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (!out) {
        out = SMPI_SHARED_MALLOC(LARGEST);
        in = SMPI_SHARED_MALLOC(LARGEST);
    }
    FILE *file = fopen(words[1], "r");
    while (fscanf(file, "%d %d %d %ld", &now, &from, &to, &bytes) == 4) {
        if (from != rank && to != rank)
            continue;
        if (now != step || open > AT_ONCE - 2) {
            MPI_Waitall(open, request, MPI_STATUSES_IGNORE);
            open = 0;
            step = now;
        }
        if (from == rank)
            MPI_Isend(out, (int)bytes, MPI_CHAR, to, step, MPI_COMM_WORLD, &request[open++]);
        if (to == rank)
            MPI_Irecv(in, (int)bytes, MPI_CHAR, from, step, MPI_COMM_WORLD, &request[open++]);
    }
    MPI_Waitall(open, request, MPI_STATUSES_IGNORE);
    fclose(file);
    mine = MPI_Wtime();
    MPI_Reduce(&mine, &last, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (!rank)
        printf("seconds %.12g\n", last);
    MPI_Finalize();
    return 0;
}
