/* Exponential, logarithm, root and rounding against Python's, which were written down as
 * hexadecimal doubles by math.exp, math.log and math.sqrt. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/exact.h"
#include "base/philox.h"

static const double exp_table[][2] = {{0x0.0p+0, 0x1.0000000000000p+0},
                                      {0x1.0000000000000p+0, 0x1.5bf0a8b145769p+1},
                                      {-0x1.0000000000000p+0, 0x1.78b56362cef38p-2},
                                      {0x1.0000000000000p-1, 0x1.a61298e1e069cp+0},
                                      {-0x1.0000000000000p-1, 0x1.368b2fc6f960ap-1},
                                      {0x1.12e0be826d695p-30, 0x1.000000044b830p+0},
                                      {-0x1.12e0be826d695p-30, 0x1.fffffff768fa1p-1},
                                      {-0x1.269621134db92p-2, 0x1.8000000000000p-1},
                                      {0x1.269621134db92p-1, 0x1.c71c71c71c71cp+0},
                                      {0x1.62e33eff19503p-2, 0x1.6a099138a089dp+0},
                                      {0x1.62e5de15ca6cap-2, 0x1.6a0a7e7cb904cp+0},
                                      {0x1.4000000000000p+3, 0x1.5829dcf950560p+14},
                                      {-0x1.4000000000000p+3, 0x1.7cd79b5647c9bp-15},
                                      {0x1.9100000000000p+6, 0x1.8c39b9134bac4p+144},
                                      {-0x1.9100000000000p+6, 0x1.4acd31e167ebbp-145},
                                      {0x1.5dc0000000000p+9, 0x1.1f0df6d72215ep+1009},
                                      {-0x1.5dc0000000000p+9, 0x1.c89c2e339b392p-1010},
                                      {0x1.798dd36217440p-1, 0x1.0b95f9fb678fdp+1},
                                      {0x1.73628344d6bc8p+0, 0x1.11094fb559410p+2},
                                      {0x1.c56ad54490d7cp+0, 0x1.782bd6ab169b7p+2},
                                      {0x1.53cd43f0c8f92p+1, 0x1.c710547f6dcf3p+3},
                                      {0x1.707bf53d30a98p+0, 0x1.0df5cf825ffd5p+2},
                                      {0x1.44587912e2426p+1, 0x1.934d55bc3fc16p+3},
                                      {-0x1.69b9570f539aep+1, 0x1.e562d95df1045p-5},
                                      {-0x1.a66dc75820ae0p-3, 0x1.a0929052527ecp-1},
                                      {0x1.547f7a37e8b7cp+1, 0x1.c98ba208aad8fp+3},
                                      {0x1.c9a65b13e9618p-1, 0x1.38e5e9f853cbep+1},
                                      {0x1.33e43e6f0ec74p+1, 0x1.62a713eb82e47p+3},
                                      {-0x1.290ecd3c4ece8p+1, 0x1.92389a769e5c6p-4},
                                      {-0x1.7c145cca115a0p-3, 0x1.a946b70979487p-1},
                                      {-0x1.85439df6e4fcbp+0, 0x1.bfab7a3504255p-3},
                                      {0x1.0cdde14e50fb8p-2, 0x1.4cddeabf8aa4ap+0},
                                      {0x1.c64b6ebf7c6a0p-2, 0x1.8ef205e85d3d2p+0},
                                      {-0x1.75eda539ce6dep+1, 0x1.b93e84808d0a9p-5},
                                      {-0x1.b31a5ff1a28f5p+0, 0x1.7647114e313cep-3},
                                      {-0x1.52b70fdd0a9e2p+0, 0x1.10b2c2d1eb434p-2},
                                      {0x1.3fc0d4b346accp+1, 0x1.8516c953af018p+3},
                                      {0x1.98277fcac59f4p+0, 0x1.3b357e977d93cp+2},
                                      {-0x1.056c88f6daebcp+1, 0x1.09aacb3a5dc90p-3},
                                      {0x1.c86af38dcf96cp+0, 0x1.7c9b2a9d2d93ap+2},
                                      {-0x1.156d3724add8ap+1, 0x1.d4e4232dee228p-4},
                                      {0x1.68d06baad1208p-1, 0x1.02fa84bf552bcp+1},
                                      {-0x1.1eb1ead34e0c8p+1, 0x1.b423a5925203dp-4},
                                      {-0x1.7ea30c42a7d6dp+1, 0x1.9c38e1feaeda6p-5},
                                      {0x1.1d3d24e082934p+1, 0x1.2920dedf2c111p+3},
                                      {-0x1.be46662b7852ap+0, 0x1.664b937bc9390p-3},
                                      {-0x1.b5055b47a7d56p+0, 0x1.737bec76278a7p-3},
                                      {0x1.727fd96fec168p+1, 0x1.2132f828e6affp+4},
                                      {0x1.1e02588ffb85cp+1, 0x1.2aec04c6a8f4ap+3},
                                      {-0x1.43a09443c768ap+0, 0x1.2140d8f99cf43p-2},
                                      {0x1.626a43b317e76p+1, 0x1.fe193708d06a7p+3},
                                      {0x1.e1fa5d41b7fb0p-3, 0x1.43ed517bef324p+0},
                                      {0x1.1125c9f823e40p+0, 0x1.740b5bfaf4d07p+1},
                                      {-0x1.c5756b1d1e9f5p+0, 0x1.5c617ab727b19p-3},
                                      {0x1.52ab68dcfb404p+1, 0x1.c30e621b5519dp+3},
                                      {0x1.24d37625ccff8p+0, 0x1.91c556abef640p+1},
                                      {0x1.665246bca6358p+1, 0x1.06f3eb861189ap+4}};
static const double log_table[][2] = {{0x1.0000000000000p+0, 0x0.0p+0},
                                      {0x1.8000000000000p-1, -0x1.269621134db92p-2},
                                      {0x1.5555555555555p+0, 0x1.269621134db91p-2},
                                      {0x1.c71c71c71c71cp+0, 0x1.269621134db92p-1},
                                      {0x1.0000000000000p-1, -0x1.62e42fefa39efp-1},
                                      {0x1.0000000000000p+1, 0x1.62e42fefa39efp-1},
                                      {0x1.0624dd2f1a9fcp-10, -0x1.ba18a998fffa0p+2},
                                      {0x1.f400000000000p+9, 0x1.ba18a998fffa0p+2},
                                      {0x1.6a09e667f3bcdp+0, 0x1.62e42fefa39f0p-2},
                                      {0x1.6a09e667f3bcep+0, 0x1.62e42fefa39f3p-2},
                                      {0x1.6a09e667f3bcdp-1, -0x1.62e42fefa39eep-2},
                                      {0x1.fffffffffffffp-1, -0x1.0000000000000p-53},
                                      {0x1.0000000000001p+0, 0x1.fffffffffffffp-53},
                                      {0x1.7e43c8800759cp+996, 0x1.5963447f87fb5p+9},
                                      {0x1.56e1fc2f8f359p-997, -0x1.5963447f87fb5p+9},
                                      {0x1.0000000000000p-1022, -0x1.6232bdd7abcd2p+9},
                                      {0x1.fffffffffffffp+1023, 0x1.62e42fefa39efp+9},
                                      {0x1.ef7b58ad5982ap+7, 0x1.60cae41aebc8ap+2},
                                      {0x1.e9c7e1a5ae0dep-5, -0x1.6891fedb2b140p+1},
                                      {0x1.2552f6e54f890p-3, -0x1.f17eca461f2e0p+0},
                                      {0x1.3115ec2f9465bp-7, -0x1.2b4da9d730f40p+2},
                                      {0x1.cb85054e5f603p-8, -0x1.3d737a9273fc0p+2},
                                      {0x1.2983569afe338p-9, -0x1.85a2835ad5118p+2},
                                      {0x1.fbb9b412f842ap-5, -0x1.63f6e8e8e6ff4p+1},
                                      {0x1.0f151bf4f9c71p+2, 0x1.718bd5c6975e8p+0},
                                      {0x1.f54712d8354f5p-11, -0x1.bcf7fe5d40178p+2},
                                      {0x1.8260b12667c1fp+3, 0x1.3edbb15e84fb0p+1},
                                      {0x1.a766ed8e24be2p-4, -0x1.227d239136026p+1},
                                      {0x1.1e56d7722beb4p-4, -0x1.548e2dd066bb8p+1},
                                      {0x1.59b114cf4e9c0p+6, 0x1.1d6466e247796p+2},
                                      {0x1.8704f9018f760p-1, -0x1.1409792004061p-2},
                                      {0x1.36b6870185a8fp-4, -0x1.4a1947f69c5d0p+1},
                                      {0x1.899e5290d4ef3p-1, -0x1.0d40d2b13617fp-2},
                                      {0x1.18e35ec55266ap+4, 0x1.6ec45fe7736e0p+1},
                                      {0x1.0979385289987p-9, -0x1.8ced5ad34ec14p+2},
                                      {0x1.82ee5e27418bep+9, 0x1.a9b06ff92b58ap+2},
                                      {0x1.493bc4b79bf53p-10, -0x1.ab833045aff37p+2},
                                      {0x1.082a19e0b825bp+5, 0x1.bfa1f7501cbd8p+1},
                                      {0x1.f402653afb764p+6, 0x1.3503661d47eb8p+2},
                                      {0x1.33d8305872acfp-10, -0x1.afcfbdb2812e8p+2},
                                      {0x1.c156ce1adaa49p+5, 0x1.01d042dee89d4p+2},
                                      {0x1.3a9184e0423b0p-3, -0x1.df98475763678p+0},
                                      {0x1.80400c4be11a6p+1, 0x1.196956f8df748p+0},
                                      {0x1.0f71067b6e051p-10, -0x1.b7dda2cd48ae3p+2},
                                      {0x1.cbd130c8e4e77p-10, -0x1.9621eba0bb27dp+2},
                                      {0x1.782f4fbc5d076p-7, -0x1.1de5695a24e68p+2},
                                      {0x1.24c3ed921d997p+9, 0x1.97d7583ae4660p+2},
                                      {0x1.d40520bae5e0ep-7, -0x1.0feaa532ab716p+2},
                                      {0x1.1f13c6246b3f2p+5, 0x1.ca4797371f998p+1},
                                      {0x1.9998e8734b03bp+8, 0x1.80f89e5bc8820p+2},
                                      {0x1.e72b943f9b23fp+8, 0x1.8c123ed3c45a0p+2},
                                      {0x1.cfa437120c627p-4, -0x1.16de278d336dcp+1},
                                      {0x1.0c329302226dep-3, -0x1.0435e85808602p+1},
                                      {0x1.69c4972f8d001p+0, 0x1.622013c19a1a1p-2},
                                      {0x1.7b21b9ced806ap+5, 0x1.ede16f27ada80p+1},
                                      {0x1.0f43c2a62c346p-8, -0x1.5f2f43ddf24e1p+2},
                                      {0x1.030c5a058cb52p+5, 0x1.bd211aeef0ed4p+1}};
static const double sqrt_table[][2] = {{0x0.0p+0, 0x0.0p+0},
                                       {0x1.0000000000000p+0, 0x1.0000000000000p+0},
                                       {0x1.0000000000000p+1, 0x1.6a09e667f3bcdp+0},
                                       {0x1.8000000000000p+1, 0x1.bb67ae8584caap+0},
                                       {0x1.0000000000000p-2, 0x1.0000000000000p-1},
                                       {0x1.0000000000000p-1022, 0x1.0000000000000p-511},
                                       {0x1.fffffffffffffp+1023, 0x1.fffffffffffffp+511},
                                       {0x1.7e43c8800759cp+996, 0x1.38d352e5096afp+498},
                                       {0x1.56e1fc2f8f359p-997, 0x1.a2fe76a3f9475p-499},
                                       {0x1.0000008000001p+52, 0x1.0000004000000p+26},
                                       {0x1.fffffffffffffp+52, 0x1.6a09e667f3bccp+26},
                                       {0x1.d7612a8ed90f5p+42, 0x1.5b61642706c07p+21},
                                       {0x1.db5fe6b75ddaep+51, 0x1.ed58f8dcdec02p+25},
                                       {0x1.1c1029ec199b0p-67, 0x1.7d5dcc1644a58p-34},
                                       {0x1.3e8c8d01fd9fdp+64, 0x1.1d912b6c95abdp+32},
                                       {0x1.03860879680d3p-59, 0x1.6c858dcf8700ap-30},
                                       {0x1.043e3b02a4904p-23, 0x1.6d06d30e46ff8p-12},
                                       {0x1.fc1f7cf6d77c1p+15, 0x1.fe0ecd11b8e99p+7},
                                       {0x1.3ef5b74bc9181p+60, 0x1.1dc04af069565p+30},
                                       {0x1.e161f3fa87614p-24, 0x1.5f0c04299f82ep-12},
                                       {0x1.25d178b86ce7bp+61, 0x1.83dc0415c5e51p+30},
                                       {0x1.6d4ad95795a26p+6, 0x1.31cd4e5964eccp+3},
                                       {0x1.ebedf462d1ca2p-28, 0x1.62df2a9c0b26cp-14},
                                       {0x1.7bfdebe4e4e6bp-27, 0x1.b915b8952f16ep-14},
                                       {0x1.628ee596be3e3p-47, 0x1.aa115d2540cbap-24},
                                       {0x1.1b608c9ea18d1p-61, 0x1.7ce7d755dfff8p-31},
                                       {0x1.4490d492d4511p-51, 0x1.97a62120ebc34p-26},
                                       {0x1.3975004ebdc80p+27, 0x1.909cae4f8b7f5p+13},
                                       {0x1.953622e1dd1d2p+71, 0x1.c77ca258595f0p+35},
                                       {0x1.1fd1f40055574p-49, 0x1.7fe14c1b5639bp-25},
                                       {0x1.d3d4ceb5de869p-66, 0x1.5a120dd97ef60p-33},
                                       {0x1.29502534d4043p+70, 0x1.13e26149f6e67p+35},
                                       {0x1.c972a55f9ebb7p+4, 0x1.56355f2813bfdp+2},
                                       {0x1.571b319c35954p-14, 0x1.285eba2ffa59dp-7},
                                       {0x1.1374eeb0eb1cdp-38, 0x1.098cdcd3df957p-19},
                                       {0x1.78431db547d40p+13, 0x1.b6ea329ae3818p+6},
                                       {0x1.0d90bfeb10462p+47, 0x1.7381cf036556dp+23},
                                       {0x1.850dcb72a8e14p-7, 0x1.be50367605db8p-4},
                                       {0x1.a355f0b513aa2p-12, 0x1.47a49c2124016p-6},
                                       {0x1.de68dbeeb967dp-65, 0x1.eeeb7f482ac2fp-33},
                                       {0x1.04ad44f92fa46p+60, 0x1.0253ece11b087p+30},
                                       {0x1.8041690aa1f8dp-68, 0x1.39a394400111cp-34},
                                       {0x1.0d024750ce0c1p-1, 0x1.731f954ca1a05p-1},
                                       {0x1.c5854c072eed4p+48, 0x1.54bc84f853400p+24},
                                       {0x1.a0acf22c3536bp-54, 0x1.469a24a81519cp-27},
                                       {0x1.5702d7cc5ba01p+33, 0x1.a312898c3ed0fp+16},
                                       {0x1.db2467f0e36bep+64, 0x1.5cc39cdce39a3p+32},
                                       {0x1.c1a505ce0e39bp+18, 0x1.5346f6fcffd6bp+9},
                                       {0x1.7710834725a44p+41, 0x1.b6373a0cf222ap+20},
                                       {0x1.302eb5727fcbep-57, 0x1.8aa41029ad36cp-29},
                                       {0x1.78f894a8ce50ep-10, 0x1.36a6e091abeefp-5}};

/* Distance in units of the last place, of numbers of the same sign. */
static int64_t distance(double a, double b)
{
    int64_t bits_a, bits_b;
    memcpy(&bits_a, &a, sizeof a);
    memcpy(&bits_b, &b, sizeof b);
    return llabs(bits_a - bits_b);
}

#define COUNT(table) (sizeof(table) / sizeof((table)[0]))

static void test_exp(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(exp_table); i++)
        assert_true(distance(exact_exp(exp_table[i][0]), exp_table[i][1]) <= 2);
    assert_true(exact_exp(0) == 1);
    assert_true(exact_exp(5000) == exact_exp(700));
    assert_true(exact_exp(-5000) == exact_exp(-700));
}

static void test_log(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(log_table); i++)
        assert_true(distance(exact_log(log_table[i][0]), log_table[i][1]) <= 2);
    assert_true(exact_log(1) == 0);
    assert_true(exact_log(0) < -1e308);
    assert_true(exact_log(-1) < -1e308);
}

static void test_sqrt(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(sqrt_table); i++)
        assert_int_equal(distance(exact_sqrt(sqrt_table[i][0]), sqrt_table[i][1]), 0);
    for (uint64_t n = 1; n < 100000; n += 7)
        assert_true(exact_sqrt((double)(n * n)) == (double)n);
    assert_true(exact_sqrt(-1) == 0);
}

/* The root r of x is right when x lies between the squares of the middles to r's neighbours; with x
 * and r whole numbers scaled so that all fits in 128 bits. */
static void test_sqrt_is_nearest(void **state)
{
    (void)state;
    const uint32_t key[2] = {1, 2};
    for (uint32_t i = 0; i < 20000; i++) {
        const uint32_t counter[4] = {i, 0, 0, 0};
        uint32_t words[4];
        philox4x32(counter, key, words);
        uint64_t x = ((uint64_t)words[0] << 32 | words[1]) >> 11 | (uint64_t)1 << 52;
        uint64_t r = (uint64_t)(exact_sqrt((double)x) * 0x1p26); /* 26 + 26.5 bits: exact */
        __extension__ typedef unsigned __int128 wide;
        wide x54 = (wide)x << 54, low = (wide)(2 * r - 1) * (2 * r - 1),
             high = (wide)(2 * r + 1) * (2 * r + 1);
        assert_true(low < x54 && x54 < high);
    }
}

static void test_round(void **state)
{
    (void)state;
    static const double halves[][2] = {
        {0.5, 0},  {1.5, 2},    {2.5, 2},   {3.5, 4},
        {-0.5, 0}, {-1.5, -2},  {-2.5, -2}, {0.49999999999999994, 0},
        {2.51, 3}, {-2.51, -3}, {7, 7},     {4503599627370495.5, 4503599627370496.0}};
    for (size_t i = 0; i < COUNT(halves); i++)
        assert_true((double)exact_round(halves[i][0]) == halves[i][1]);
    assert_true(exact_round(1e300) == (int64_t)1 << 52);
    assert_true(exact_round(-1e300) == -((int64_t)1 << 52));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exp), cmocka_unit_test(test_log), cmocka_unit_test(test_sqrt),
        cmocka_unit_test(test_sqrt_is_nearest), cmocka_unit_test(test_round)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
