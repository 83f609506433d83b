// Paged attention: keys and values are read where they lie, block by block.
//
// In one block and head, with L = min(16, block_size): key element (token t, dimension d) lies at
// [t / L][d / pack][t % L][d % pack], so that 16 scores grow side by side; value element (t, d) at
// [d / 16][t / pack][d % 16][t % pack], so that 16 dimensions do. A row's sums are made in the same order alone, in a
// chunk of prefill, or at decode: its numbers do not depend on how the work was cut.
#pragma once
#include <algorithm>
#include <vector>

#include "simd.h"
#include "team.h"

struct Cache {
    void* data;  // (layers, 2, blocks, kv_heads, block_size * head_dim)
    int64_t blocks, kv_heads, block_size, head_dim;
};

// One batch: sequence s owns the rows starts[s] .. starts[s + 1] - 1; a row attends to positions 0 .. its own.
struct Step {
    int64_t rows, sequences, samples, table_width;
    const int32_t *ids, *positions, *slots;  // (rows,); slot = block * block_size + offset
    const int32_t *starts;                   // (sequences + 1,)
    const int32_t *tables;                   // (sequences, table_width)
    const int32_t *sampled;                  // (samples,) rows whose logits are wanted
};

constexpr int kQueries = 8;  // query rows that share a walk over the keys

template <class T> struct Paged {
    static constexpr int P = pack_of<T>;
    const Cache& c;
    T *keys, *values;
    int64_t size, lanes;  // elements of a head's block; L

    Paged(const Cache& cache, int64_t layer) : c(cache) {
        size = c.block_size * c.head_dim;
        lanes = std::min<int64_t>(16, c.block_size);
        keys = static_cast<T*>(c.data) + layer * 2 * c.blocks * c.kv_heads * size;
        values = keys + c.blocks * c.kv_heads * size;
    }

    void write(int64_t slot, int64_t head, const float* key, const float* value) const {
        const int64_t block = slot / c.block_size, t = slot % c.block_size, at = (block * c.kv_heads + head) * size;
        T* k = keys + at + t / lanes * lanes * c.head_dim + t % lanes * P;
        for (int64_t d = 0; d < c.head_dim; d++) k[d / P * lanes * P + d % P] = from_float<T>(key[d]);
        for (int64_t first = 0; first < c.head_dim; first += 16) {
            const int64_t width = std::min<int64_t>(16, c.head_dim - first);
            T* v = values + at + first * c.block_size + t / P * width * P + t % P;
            for (int64_t d = 0; d < width; d++) v[d * P] = from_float<T>(value[first + d]);
        }
    }

    // What is read is 16 lanes wide; a narrower piece is copied out first.
    static const T* wide(const T* piece, int64_t width, T* copy) {
        if (width == 16) return piece;
        std::memcpy(copy, piece, width * P * sizeof(T));
        return copy;
    }

    // scores[r][position] for R queries against one block.
    template <int R>
    void score(const Left<T>* const* q, const T* block, int64_t first, float scale, float* scores, int64_t room) const {
        T copy[16 * P] = {};
        for (int64_t group = 0; group < c.block_size; group += lanes) {
            const T* k = block + group * c.head_dim;
            v16 even[R] = {}, odd[R] = {};
            for (int64_t d = 0; d < c.head_dim; d += 2 * P) {
                const T* w = wide(k + d * lanes, lanes, copy);
#pragma GCC unroll 8
                for (int r = 0; r < R; r++) multiply_add(even[r], q[r] + d, w);
                if (d + P >= c.head_dim) break;
                w = wide(k + (d + P) * lanes, lanes, copy);
#pragma GCC unroll 8
                for (int r = 0; r < R; r++) multiply_add(odd[r], q[r] + d + P, w);
            }
            for (int r = 0; r < R; r++) store(scores + r * room + first + group, (even[r] + odd[r]) * scale);
        }
    }

    // out[r][d] += sum over the block's first `tokens` of p[r][token] * value[token][d]
    template <int R, int N>
    void mix(const Left<T>* p, int64_t room, const T* v, int64_t tokens, int64_t width, float* out, int64_t stride) const {
        T copy[16 * P] = {};
        v16 acc[R][N];
        for (int r = 0; r < R; r++)
            for (int n = 0; n < N; n++) acc[r][n] = load(out + r * stride + n * 16);
        for (int64_t t = 0; t < tokens; t += P)
#pragma GCC unroll 4
            for (int n = 0; n < N; n++) {
                const T* w = wide(v + (n * c.block_size + t) * width, width, copy);
#pragma GCC unroll 8
                for (int r = 0; r < R; r++) multiply_add(acc[r][n], p + r * room + t, w);
            }
        for (int r = 0; r < R; r++)
            for (int n = 0; n < N; n++) store(out + r * stride + n * 16, acc[r][n]);
    }

    void fetch(const T* block) const {
        for (int64_t i = 0; i < size; i += 64 / sizeof(T)) __builtin_prefetch(block + i, 0, 2);
    }

    // Rows of one sequence and kv head: q[r], out[r] are head_dim long, last[r] is the last position that r sees.
    template <int R>
    void attend(const T* const* q, T* const* out, const int64_t* last, const int32_t* table, int64_t head, float scale,
                float* memory) const {
        const int64_t end = *std::max_element(last, last + R) + 1, blocks = (end + c.block_size - 1) / c.block_size;
        const int64_t room = (blocks * c.block_size + 31 - lanes) / 16 * 16, stride = (c.head_dim + 15) / 16 * 16;
        float *scores = memory, *sums = memory + R * room;
        auto* weights = reinterpret_cast<Left<T>*>(sums + R * stride);
        float* wide = sums + R * (stride + room);
        const Left<T>* left[R];
        for (int r = 0; r < R; r++) left[r] = as_left(q[r], c.head_dim, wide + r * stride);
        auto at = [&](T* base, int64_t b) { return base + (table[b] * c.kv_heads + head) * size; };
        for (int64_t b = 0; b < blocks; b++) {
            if (b + 2 < blocks) fetch(at(keys, b + 2));
            score<R>(left, at(keys, b), b * c.block_size, scale, scores, room);
        }
        if (blocks) fetch(at(values, 0));
        float total[R];
        for (int r = 0; r < R; r++) total[r] = soften(scores + r * room, last[r] + 1, room, weights + r * room);
        std::fill(sums, sums + R * stride, 0.0f);
        for (int64_t b = 0; b < blocks; b++) {
            if (b + 1 < blocks) fetch(at(values, b + 1));
            const T* v = at(values, b);
            const Left<T>* p = weights + b * c.block_size;
            const int64_t tokens = std::min(c.block_size, end - b * c.block_size);
            int64_t d = 0;
            if constexpr (R <= 5)
                for (; d + 64 <= c.head_dim; d += 64) mix<R, 4>(p, room, v + d * c.block_size, tokens, 16, sums + d, stride);
            for (; d + 32 <= c.head_dim; d += 32) mix<R, 2>(p, room, v + d * c.block_size, tokens, 16, sums + d, stride);
            for (; d < c.head_dim; d += 16) {
                const int64_t width = std::min<int64_t>(16, c.head_dim - d);
                mix<R, 1>(p, room, v + d * c.block_size, tokens, width, sums + d, stride);
            }
        }
        for (int r = 0; r < R; r++)
            for (int64_t d = 0; d < c.head_dim; d += 16) store(out[r] + d, load(sums + r * stride + d) / total[r], int(c.head_dim - d));
    }

    // Scores of `count` positions to weights e**(score - top), zero from there on; returns their sum.
    static float soften(float* scores, int64_t count, int64_t room, Left<T>* weights) {
        for (int64_t i = count; i < room; i++) scores[i] = -1e30f;
        v16 top = load(scores), total = {};
        for (int64_t i = 16; i < room; i += 16) top = maximum(top, load(scores + i));
        const float highest = maximum_of(top);
        for (int64_t i = 0; i < room; i += 16) {
            const v16 weight = exponential(load(scores + i) - highest);
            total += weight;
            store(weights + i, weight);
        }
        return sum_of(total);
    }
};

// Memory that a thread needs to attend to `context` positions.
inline int64_t attention_floats(const Cache& c, int64_t context) {
    return kQueries * 2 * (context + c.block_size + 32 + c.head_dim + 16);
}

// Rows of one sequence that go together: pairs (row, head of the group) number begin .. end - 1.
struct Tile {
    int64_t sequence, begin, end;
};

inline std::vector<Tile> tiles_of(const Step& step, int64_t group) {
    std::vector<Tile> tiles;
    for (int64_t s = 0; s < step.sequences; s++) {
        const int64_t pairs = (step.starts[s + 1] - step.starts[s]) * group, count = (pairs + kQueries - 1) / kQueries;
        for (int64_t t = 0; t < count; t++) tiles.push_back({s, pairs * t / count, pairs * (t + 1) / count});
    }
    return tiles;
}

template <class T, int R = kQueries, class... Rest>
void attend_rows(int rows, const Paged<T>& paged, Rest... rest) {
    if constexpr (R > 0) {
        if (rows == R) return paged.template attend<R>(rest...);
        attend_rows<T, R - 1>(rows, paged, rest...);
    }
}

// queries and out: (rows, heads, head_dim). Shared out over the team.
template <class T>
void attend_all(Team& team, const Paged<T>& paged, const Step& step, const std::vector<Tile>& tiles, int64_t heads, float scale,
                const T* queries, T* out, float* memory) {
    const int64_t kv_heads = paged.c.kv_heads, group = heads / kv_heads, dim = paged.c.head_dim;
    const int64_t items = int64_t(tiles.size()) * kv_heads;
    team.share(items, [&](int64_t item) {
        const Tile& tile = tiles[item / kv_heads];
        const int64_t head = item % kv_heads, rows = tile.end - tile.begin;
        const T* q[kQueries];
        T* o[kQueries];
        int64_t last[kQueries];
        for (int64_t i = 0; i < rows; i++) {
            const int64_t pair = tile.begin + i, row = step.starts[tile.sequence] + pair / group;
            const int64_t at = (row * heads + head * group + pair % group) * dim;
            q[i] = queries + at, o[i] = out + at, last[i] = step.positions[row];
        }
        const int32_t* table = step.tables + tile.sequence * step.table_width;
        attend_rows<T>(int(rows), paged, q, o, last, table, head, scale, memory);
    });
}
