// Sixteen floats at a time, on whatever the compiler makes of them, and the one product that all kernels are made of.
#pragma once
#include <cstdint>
#include <cstring>
#ifdef __AVX512BF16__
#include <immintrin.h>
#endif

typedef float v16 __attribute__((vector_size(64), aligned(4)));
typedef int32_t i16x __attribute__((vector_size(64), aligned(4)));

struct bf16 {
    uint16_t bits;
};

// Values of the summed dimension that lie side by side in a lane: bf16 products are made in pairs.
template <class T> constexpr int pack_of = 1;
template <> constexpr int pack_of<bf16> = 2;

inline float to_float(float x) { return x; }
inline float to_float(bf16 x) {
    uint32_t bits = uint32_t(x.bits) << 16;
    float y;
    std::memcpy(&y, &bits, 4);
    return y;
}

template <class T> T from_float(float x);
template <> inline float from_float<float>(float x) { return x; }
template <> inline bf16 from_float<bf16>(float x) {  // to nearest, ties to even
    uint32_t bits;
    std::memcpy(&bits, &x, 4);
    return bf16{uint16_t((bits + 0x7fff + ((bits >> 16) & 1)) >> 16)};
}

inline v16 load(const float* p) { return *reinterpret_cast<const v16*>(p); }
inline void store(float* p, v16 x) { *reinterpret_cast<v16*>(p) = x; }
inline void store(bf16* p, v16 x) {
#ifdef __AVX512BF16__
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), (__m256i)_mm512_cvtneps_pbh((__m512)x));
#else
    for (int i = 0; i < 16; i++) p[i] = from_float<bf16>(x[i]);
#endif
}
template <class T> void store(T* p, v16 x, int count) {
    if (count >= 16) return store(p, x);
    for (int i = 0; i < count; i++) p[i] = from_float<T>(x[i]);
}

// What stands left in a product: values as they lie, but for bf16 where the processor multiplies none. There they are
// widened once for many products, and broadcast straight from memory: doing it in each product made them half as fast.
template <class T> struct left_of { using type = T; };
#ifndef __AVX512BF16__
template <> struct left_of<bf16> { using type = float; };
#endif
template <class T> using Left = typename left_of<T>::type;
template <class T> constexpr bool widened = sizeof(Left<T>) != sizeof(T);

// `count` values for the left side; `wide` has room for them.
template <class T> const Left<T>* as_left(const T* x, int64_t count, float* wide) {
    if constexpr (!widened<T>) return x;
    else {
        for (int64_t i = 0; i < count; i++) wide[i] = to_float(x[i]);
        return wide;
    }
}

// acc[lane] += sum over i < pack of a[i] * w[lane][i]
inline void multiply_add(v16& acc, const float* a, const float* w) { acc += *a * load(w); }
inline void multiply_add(v16& acc, const Left<bf16>* a, const bf16* w) {
#ifdef __AVX512BF16__
    int32_t pair;
    std::memcpy(&pair, a, 4);
    acc = (v16)_mm512_dpbf16_ps((__m512)acc, (__m512bh)_mm512_set1_epi32(pair), (__m512bh)_mm512_loadu_si512(w));
#else
    i16x pairs;
    std::memcpy(&pairs, w, 64);
    acc += a[0] * (v16)(pairs << 16);
    acc += a[1] * (v16)(pairs & int32_t(0xffff0000));
#endif
}

inline v16 maximum(v16 a, v16 b) { return a > b ? a : b; }
inline float sum_of(v16 x) {
    float total = 0;
    for (int i = 0; i < 16; i++) total += x[i];
    return total;
}
inline float maximum_of(v16 x) {
    float top = x[0];
    for (int i = 1; i < 16; i++) top = x[i] > top ? x[i] : top;
    return top;
}

// e**x for x <= 88, relative error below 2e-7 (Cephes' polynomial); 0 below -87.
inline v16 exponential(v16 x) {
    v16 low = x < -87.3f ? (v16){} : (v16){} + 1.0f;
    x = maximum(x, (v16){} - 87.3f);
    i16x n = __builtin_convertvector(x * 1.44269504f + (x < 0.0f ? (v16){} - 0.5f : (v16){} + 0.5f), i16x);
    v16 whole = __builtin_convertvector(n, v16);
    v16 r = x - whole * 0.693359375f - whole * -2.12194440e-4f;
    v16 y = (v16){} + 1.9875691500e-4f;
    y = y * r + 1.3981999507e-3f;
    y = y * r + 8.3334519073e-3f;
    y = y * r + 4.1665795894e-2f;
    y = y * r + 1.6666665459e-1f;
    y = y * r + 5.0000001201e-1f;
    y = y * r * r + r + 1.0f;
    return low * y * (v16)((n + 127) << 23);
}
