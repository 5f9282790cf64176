"""Memory of block images: small ones grow by doubling, large ones get huge pages for a full block.

Every page of fresh memory costs a page fault, which is slower than copying the data. So an image
that outgrows LARGE_IMAGE_BYTES gets memory for a full block at once, which the kernel may back with
2 MiB pages, one by one, as they are written. Memory that another block released is better still: a
log keeps one such image, and its next block starts in it.

Large images start at a page boundary, so they can be written without a copy in the page cache.
"""

cdef struct SpareImage:
    char* image               # NULL: none
    size_t cap

cdef extern from *:
    """
    #include <stdio.h>
    #include <stdlib.h>
    #include <string.h>
    #include <sys/mman.h>

    #define LARGE_IMAGE_BYTES ((size_t)1 << 20)
    #define HUGE_PAGE_BYTES ((size_t)1 << 21)
    #define SPARE_IMAGE_BYTES ((size_t)4096)  /* a mark may go beyond a full block */

    static char *penstock_first_image(size_t wanted, size_t *cap, char **spare, size_t *spare_cap) {
        char *fresh = *spare;
        if (fresh && *spare_cap >= wanted) {
            *spare = NULL;
            *cap = *spare_cap;
            return fresh;
        }
        fresh = malloc(wanted);
        if (!fresh) { fputs("penstock: out of memory\\n", stderr); abort(); }
        *cap = wanted;
        return fresh;
    }
    static char *penstock_grow_image(char *old, size_t used, size_t wanted, size_t block_bytes,
                                     size_t *cap, char **spare, size_t *spare_cap) {
        size_t room = *cap;
        char *fresh;
        while (room < wanted)
            room *= 2;
        if (room <= LARGE_IMAGE_BYTES || *cap > LARGE_IMAGE_BYTES) {
            fresh = realloc(old, room);
            if (!fresh) { fputs("penstock: out of memory\\n", stderr); abort(); }
            *cap = room;
            return fresh;
        }
        if (*spare && *spare_cap >= room) {
            fresh = *spare;
            *spare = NULL;
            memcpy(fresh, old, used);
            free(old);
            *cap = *spare_cap;
            return fresh;
        }
        if (block_bytes < LARGE_IMAGE_BYTES)  /* no limit, or one below what is stored already */
            block_bytes = room;
        if (block_bytes > wanted && block_bytes != (size_t)-1)
            room = block_bytes;
        room = (room + HUGE_PAGE_BYTES - 1) / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
        if (posix_memalign((void **)&fresh, HUGE_PAGE_BYTES, room + SPARE_IMAGE_BYTES) != 0) {
            fputs("penstock: out of memory\\n", stderr);
            abort();
        }
    #ifdef MADV_HUGEPAGE
        madvise(fresh, room, MADV_HUGEPAGE);  /* a wish: without it all is as before */
    #endif
        memcpy(fresh, old, used);
        free(old);
        *cap = room + SPARE_IMAGE_BYTES;
        return fresh;
    }
    static void penstock_let_go(char *image, size_t cap, char **spare, size_t *spare_cap) {
        if (cap > LARGE_IMAGE_BYTES && !*spare) {
            *spare = image;
            *spare_cap = cap;
        } else {
            free(image);
        }
    }
    """
    char* first_image "penstock_first_image"(size_t wanted, size_t* cap, char** spare,
                                             size_t* spare_cap) noexcept nogil
    char* grow_image "penstock_grow_image"(char* old, size_t used, size_t wanted,
                                           size_t block_bytes, size_t* cap, char** spare,
                                           size_t* spare_cap) noexcept nogil
    void let_go "penstock_let_go"(char* image, size_t cap, char** spare,
                                  size_t* spare_cap) noexcept nogil
