// Rows times a packed weight matrix. Each result is summed in the same order however many rows go together, so that a
// token's numbers do not depend on its neighbours in the batch.
#pragma once
#include <algorithm>

#include "simd.h"
#include "team.h"

// A weight (n, k) as panels of 16 outputs: element (j, i) at [j / 16][i / pack][j % 16][i % pack]; the last panel padded.
struct Matrix {
    const void* panels;
    const float* bias;  // (n,) or null
    int64_t n, k;
};

constexpr int kRows = 8, kPanels = 3;  // accumulators of a tile: 24 of 32 vector registers
constexpr int64_t kStretch = 512;      // of the summed dimension at a time: eight rows of it stay in the first cache

// `out` has room for whole panels and is zero where the last one is padded.
template <class T> void pack_matrix(const T* w, int64_t n, int64_t k, T* out) {
    constexpr int P = pack_of<T>;
#pragma omp parallel for schedule(static)
    for (int64_t panel = 0; panel < (n + 15) / 16; panel++) {
        const int64_t first = panel * 16, lanes = std::min<int64_t>(16, n - first);
        for (int64_t i = 0; i < k; i += P)
            for (int64_t lane = 0; lane < lanes; lane++)
                std::memcpy(out + (first * k + i * 16) + lane * P, w + (first + lane) * k + i, P * sizeof(T));
    }
}

// R rows times N panels. With `soon`, the memory read next is fetched meanwhile, a line for each line used.
template <class T, int R, int N, bool Ahead, class Put>
void tile(const T* a, int64_t k, const T* w, const T* soon, Put&& put) {
    v16 acc[R][N] = {};
    alignas(64) float wide[R * kStretch];
    for (int64_t from = 0; from < k; from += kStretch) {
        const int64_t count = std::min(kStretch, k - from), stride = widened<T> ? kStretch : k;
        const Left<T>* left = as_left(a + from, count, wide);
        for (int r = 1; r < R; r++) as_left(a + r * k + from, count, wide + r * kStretch);
        for (int64_t i = 0; i < count; i += pack_of<T>) {
#pragma GCC unroll 8
            for (int r = 0; r < R; r++)
#pragma GCC unroll 3
                for (int p = 0; p < N; p++) multiply_add(acc[r][p], left + r * stride + i, w + (p * k + from + i) * 16);
            if constexpr (Ahead)
                for (int p = 0; p < N; p++) __builtin_prefetch(soon + (p * k + from + i) * 16, 0, 2);
        }
    }
    for (int r = 0; r < R; r++) put(r, acc[r]);
}

template <class T, int N, bool Ahead, int R = kRows, class Put>
void tile_of(int rows, const T* a, int64_t k, const T* w, const T* soon, Put&& put) {
    if constexpr (R > 0) {
        if (rows == R) return tile<T, R, N, Ahead>(a, k, w, soon, put);
        tile_of<T, N, Ahead, R - 1>(rows, a, k, w, soon, put);
    }
}

// put(row, panel, sums of 16 outputs each [N], N): results of N neighbouring panels. Shared out over the team.
// The last tile of rows fetches the weights that this thread will probably take next.
template <class T, class Put>
void multiply(Team& team, const Matrix& w, const T* a, int64_t rows, Put&& put) {
    const int64_t count = (w.n + 15) / 16, tiles = (rows + kRows - 1) / kRows, k = w.k;
    const int64_t stride = 16 * k * kPanels, next_group = stride * team.threads;
    team.share((count + kPanels - 1) / kPanels, [&](int64_t group) {
        const int64_t panel = group * kPanels;
        const T* right = static_cast<const T*>(w.panels) + panel * 16 * k;
        for (int64_t t = 0; t < tiles; t++) {
            const int64_t first = rows * t / tiles, size = rows * (t + 1) / tiles - first;
            const T* left = a + first * k;
            auto at = [&](int r, const v16* sums) { put(first + r, panel, sums, std::min<int64_t>(kPanels, count - panel)); };
            if (panel + 1 == count)
                tile_of<T, 1, false>(int(size), left, k, right, nullptr, at);
            else if (panel + 2 == count)
                tile_of<T, 2, false>(int(size), left, k, right, nullptr, at);
            else if (t + 1 < tiles)
                tile_of<T, 3, false>(int(size), left, k, right, nullptr, at);
            else
                tile_of<T, 3, true>(int(size), left, k, right, right + next_group, at);
        }
    });
}
