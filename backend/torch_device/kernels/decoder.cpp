// A decoder of the Llama family (RMS norm, rotary positions, gated SiLU) as one call a step, and paged attention alone for
// models that run through their own modules. All matrix sums are in float; what enters one is of type T.
#include <cmath>

#include "attention.h"
#include "matrix.h"

struct Layer {
    const float *input_norm, *output_norm;  // (hidden,): before attention, before the gated part
    const float *query_norm, *key_norm;     // (head_dim,) or null
    Matrix qkv, out, gate_up, down;         // gate_up: 8 outputs of gate, the same 8 of up, and so on
};

struct Decoder {
    int64_t layers, hidden, heads, intermediate, threads;
    float epsilon, scale;
    const Layer* layer;
    const void* embedding;     // (vocabulary, hidden)
    const float* final_norm;   // (hidden,)
    const float *cosine, *sine;  // (positions, head_dim)
    Matrix head;
    Cache cache;
};

namespace {

template <class T> void norm(const float* x, const float* weight, int64_t n, float epsilon, T* out) {
    float squares = 0;
#pragma omp simd reduction(+ : squares)
    for (int64_t i = 0; i < n; i++) squares += x[i] * x[i];
    const float scale = 1 / std::sqrt(squares / n + epsilon);
    for (int64_t i = 0; i < n; i++) out[i] = from_float<T>(x[i] * scale * weight[i]);
}

// Half of the dimensions rotate against the other half, after the head's own norm where there is one.
void rotate(float* x, const float* weight, int64_t n, float epsilon, const float* cosine, const float* sine) {
    if (weight) norm<float>(x, weight, n, epsilon, x);
    for (int64_t i = 0, half = n / 2; i < half; i++) {
        const float a = x[i], b = x[i + half];
        x[i] = a * cosine[i] - b * sine[i];
        x[i + half] = b * cosine[i + half] + a * sine[i + half];
    }
}

// Lanes 0-7 of each sum are gate, 8-15 up: out = gate / (1 + e**-gate) * up.
template <class T> void gated(const v16* sums, int64_t panels, int64_t left, T* out) {
    for (int64_t p = 0; p < panels; p += 2) {
        const v16 a = sums[p], b = p + 1 < panels ? sums[p + 1] : v16{};
        const v16 gate = __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23);
        const v16 up = __builtin_shufflevector(a, b, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31);
        const int64_t width = std::min<int64_t>({16, (panels - p) * 8, left - p * 8});
        store(out + p * 8, gate / (exponential(-maximum(gate, v16{} - 80.0f)) + 1.0f) * up, int(width));
    }
}

struct Carve {  // pieces of the caller's workspace
    char* at;
    template <class T> T* take(int64_t count) {
        T* piece = reinterpret_cast<T*>(at);
        at += (count * sizeof(T) + 63) / 64 * 64;
        return piece;
    }
};

int64_t longest(const Step& s) { return s.rows ? *std::max_element(s.positions, s.positions + s.rows) + 1 : 0; }

template <class T> struct Run {
    const Decoder& m;
    const Step& s;
    int64_t queries, keys, wide;  // widths: of queries, of keys, of queries + keys + values
    float *residual, *qkv, *memory;
    T *normed, *query, *attended, *gate;
    int64_t bytes;

    Run(const Decoder& model, const Step& step, char* workspace) : m(model), s(step) {
        queries = m.heads * m.cache.head_dim, keys = m.cache.kv_heads * m.cache.head_dim, wide = queries + 2 * keys;
        Carve carve{workspace};
        residual = carve.take<float>(s.rows * m.hidden), qkv = carve.take<float>(s.rows * wide);
        normed = carve.take<T>(s.rows * m.hidden), query = carve.take<T>(s.rows * queries);
        attended = carve.take<T>(s.rows * queries), gate = carve.take<T>(s.rows * m.intermediate);
        memory = carve.take<float>(m.threads * attention_floats(m.cache, longest(s)));
        bytes = carve.at - workspace;
    }

    // Every function below is run by the whole team.
    void norm_rows(Team& team, const float* weight) {
        team.share(s.rows, [&](int64_t r) {
            norm(residual + r * m.hidden, weight, m.hidden, m.epsilon, normed + r * m.hidden);
        });
    }

    static void keep(const Matrix& w, float* out, int64_t r, int64_t panel, const v16* sums, int64_t panels, bool add) {
        for (int64_t p = 0; p < panels; p++) {
            const int64_t j = (panel + p) * 16, width = std::min<int64_t>(16, w.n - j);
            float* to = out + r * w.n + j;
            for (int64_t i = 0; i < width; i++) to[i] = (add ? to[i] : 0.0f) + sums[p][i] + (w.bias ? w.bias[j + i] : 0.0f);
        }
    }

    void project(Team& team, const Matrix& w, const T* x, int64_t rows, float* out, bool add) {
        multiply(team, w, x, rows, [&](int64_t r, int64_t panel, const v16* sums, int64_t panels) {
            keep(w, out, r, panel, sums, panels, add);
        });
    }

    void place(Team& team, const Layer& layer, const Paged<T>& paged) {
        const int64_t dim = m.cache.head_dim;
        team.share(s.rows, [&](int64_t r) {
            float* x = qkv + r * wide;
            const float *cosine = m.cosine + s.positions[r] * dim, *sine = m.sine + s.positions[r] * dim;
            for (int64_t h = 0; h < m.heads; h++) rotate(x + h * dim, layer.query_norm, dim, m.epsilon, cosine, sine);
            for (int64_t i = 0; i < queries; i++) query[r * queries + i] = from_float<T>(x[i]);
            for (int64_t h = 0; h < m.cache.kv_heads; h++) {
                float* key = x + queries + h * dim;
                rotate(key, layer.key_norm, dim, m.epsilon, cosine, sine);
                paged.write(s.slots[r], h, key, key + keys);
            }
        });
    }

    void run_layer(Team& team, const Layer& layer, int64_t index, const std::vector<Tile>& tiles, float* mine) {
        const Paged<T> paged(m.cache, index);
        norm_rows(team, layer.input_norm);
        project(team, layer.qkv, normed, s.rows, qkv, false);
        place(team, layer, paged);
        attend_all(team, paged, s, tiles, m.heads, m.scale, query, attended, mine);
        project(team, layer.out, attended, s.rows, residual, true);
        norm_rows(team, layer.output_norm);
        multiply(team, layer.gate_up, normed, s.rows, [&](int64_t r, int64_t panel, const v16* sums, int64_t panels) {
            gated(sums, panels, m.intermediate - panel * 8, gate + r * m.intermediate + panel * 8);
        });
        project(team, layer.down, gate, s.rows, residual, true);
    }

    void run(float* logits) {
        const std::vector<Tile> tiles = tiles_of(s, m.heads / m.cache.kv_heads);
        const T* embedding = static_cast<const T*>(m.embedding);
        Team::run(int(m.threads), [&](Team& team, int thread) {
            team.share(s.rows, [&](int64_t r) {
                const T* from = embedding + s.ids[r] * m.hidden;
                for (int64_t i = 0; i < m.hidden; i++) residual[r * m.hidden + i] = to_float(from[i]);
            });
            float* mine = memory + thread * attention_floats(m.cache, longest(s));
            for (int64_t i = 0; i < m.layers; i++) run_layer(team, m.layer[i], i, tiles, mine);
            team.share(s.samples, [&](int64_t i) {
                const float* from = residual + s.sampled[i] * m.hidden;
                norm(from, m.final_norm, m.hidden, m.epsilon, normed + i * m.hidden);
            });
            project(team, m.head, normed, s.samples, logits, false);
        });
    }
};

template <class T>
void paged_attention(const Cache& cache, const Step& step, int64_t layer, int64_t heads, int64_t threads, float scale,
                     const T* query, const float* key, const float* value, T* out, float* memory) {
    const Paged<T> paged(cache, layer);
    const std::vector<Tile> tiles = tiles_of(step, heads / cache.kv_heads);
    Team::run(int(threads), [&](Team& team, int thread) {
        team.share(step.rows, [&](int64_t r) {
            for (int64_t h = 0; h < cache.kv_heads; h++) {
                const int64_t at = (r * cache.kv_heads + h) * cache.head_dim;
                paged.write(step.slots[r], h, key + at, value + at);
            }
        });
        float* mine = memory + thread * attention_floats(cache, longest(step));
        attend_all(team, paged, step, tiles, heads, scale, query, out, mine);
    });
}

template <class T> void product(const Matrix& w, const T* a, int64_t rows, int64_t threads, float* out) {
    Team::run(int(threads), [&](Team& team, int) {
        multiply(team, w, a, rows, [&](int64_t r, int64_t panel, const v16* sums, int64_t panels) {
            Run<T>::keep(w, out, r, panel, sums, panels, false);
        });
    });
}

}  // namespace

#define EXPORT(T, NAME)                                                                                                   \
    void pack_##NAME(const T* w, int64_t n, int64_t k, T* out) { pack_matrix(w, n, k, out); }                             \
    void multiply_##NAME(const Matrix* w, const T* a, int64_t rows, int64_t threads, float* out) {                        \
        product(*w, a, rows, threads, out);                                                                               \
    }                                                                                                                     \
    int64_t workspace_##NAME(const Decoder* m, const Step* s) { return Run<T>(*m, *s, nullptr).bytes; }                   \
    void forward_##NAME(const Decoder* m, const Step* s, char* workspace, float* logits) {                                \
        Run<T>(*m, *s, workspace).run(logits);                                                                            \
    }                                                                                                                     \
    void attend_##NAME(const Cache* c, const Step* s, int64_t layer, int64_t heads, int64_t threads, float scale,         \
                       const T* q, const float* k, const float* v, T* out, float* memory) {                               \
        paged_attention(*c, *s, layer, heads, threads, scale, q, k, v, out, memory);                                      \
    }

extern "C" {
EXPORT(float, float32)
EXPORT(bf16, bfloat16)
int64_t attention_workspace(const Cache* c, const Step* s, int64_t threads) {
    return threads * attention_floats(*c, longest(*s)) * int64_t(sizeof(float));
}
}
