-- Generated from lib/attn.h by tools/gen_cdef.lua; do not edit.
local M = {version = '0.1.0'}

-- Structs whose size is compared with the library's.
M.structs = {
    'attn_device_id',
    'attn_dtype',
    'attn_tensor',
    'attn_device_options',
    'attn_device_info',
    'attn_symbol',
    'attn_capture',
    'attn_window',
    'attn_node',
    'attn_blocks',
    'attn_call',
    'attn_plan_info',
}

M.text = [[
typedef enum attn_status {
    ATTN_OK = 0,
    ATTN_INVALID = -1,
    ATTN_SHAPE = -2,
    ATTN_DTYPE = -3,
    ATTN_DEVICE = -4,
    ATTN_LAYOUT = -5,
    ATTN_VARIANT = -6,
    ATTN_PARSE = -7,
    ATTN_CAPTURE = -8,
    ATTN_MISMATCH = -9,
    ATTN_MEMORY = -10,
    ATTN_IO = -11,
    ATTN_UNSUPPORTED = -12,
    ATTN_DRIVER = -13,
    ATTN_STATUS_END = 1
} attn_status;
const char *attn_version(void);
const char *attn_error(void);
const char *attn_error_arg(void);
const char *attn_status_name(int status);
size_t attn_sizeof(const char *struct_name);
int attn_log(const char *path, int level);
typedef struct attn_device_id {
    int32_t device_type;
    int32_t device_id;
} attn_device_id;
typedef struct attn_dtype {
    uint8_t code, bits;
    uint16_t lanes;
} attn_dtype;
typedef struct attn_tensor {
    void *data;
    attn_device_id device;
    int32_t ndim;
    attn_dtype dtype;
    int64_t *shape;
    int64_t *strides;
    uint64_t byte_offset;
} attn_tensor;
typedef enum attn_type {
    ATTN_F64 = 2 | 64 << 8,
    ATTN_F32 = 2 | 32 << 8,
    ATTN_F16 = 2 | 16 << 8,
    ATTN_BF16 = 4 | 16 << 8,
    ATTN_I32 = 0 | 32 << 8,
    ATTN_U8 = 1 | 8 << 8,
    ATTN_BOOL = 6 | 8 << 8,
    ATTN_E4M3FN = 10 | 8 << 8,
    ATTN_E4M3FNUZ = 11 | 8 << 8,
    ATTN_E5M2 = 12 | 8 << 8,
    ATTN_E5M2FNUZ = 13 | 8 << 8,
    ATTN_TYPE_END = 0x7fff
} attn_type;
typedef struct attn_device attn_device;
typedef struct attn_device_options {
    uint32_t size;
    int32_t threads;
} attn_device_options;
typedef struct attn_device_info {
    uint32_t size;
    int32_t kind, index;
    int32_t emulated;
    int32_t threads;
    uint32_t reserved;
    uint64_t memory;
    uint64_t used;
    char name[64];
    char arch[64];
    char missing[192];
} attn_device_info;
int attn_device_list(attn_device_info *list, int capacity);
int attn_device_open(const char *name, const attn_device_options *options, attn_device **device);
int attn_device_query(const attn_device *device, attn_device_info *info);
attn_device *attn_device_retain(attn_device *device);
void attn_device_release(attn_device *device);
int attn_buffer_new(attn_device *device, uint64_t bytes, void **pointer);
void attn_buffer_release(attn_device *device, void *pointer);
int attn_buffer_new_on(attn_device *device, uint64_t bytes, void *stream, void **pointer);
int attn_buffer_use(attn_device *device, void *pointer, void *stream);
void attn_buffer_retire(attn_device *device, void *pointer);
int attn_buffer_trim(attn_device *device);
int attn_tensor_copy(attn_device *device, const attn_tensor *to, const attn_tensor *from,
    void *stream);
typedef enum attn_distribution {
    ATTN_NORMAL = 1,
    ATTN_UNIFORM = 2
} attn_distribution;
int attn_random(attn_device *device, const attn_tensor *tensor, int distribution, uint64_t seed,
    void *stream);
int attn_stream_new(attn_device *device, void **stream);
void attn_stream_release(attn_device *device, void *stream);
int attn_stream_sync(attn_device *device, void *stream);
typedef struct attn_variant attn_variant;
int attn_variant_parse(const char *text, attn_variant **variant);
int attn_variant_ready(const char *name, const double *numbers, int n_numbers,
    attn_variant **variant);
const char *attn_variant_list(int i, const char **text, const char **about);
int attn_variant_compose(const attn_variant *const *parts, int n, attn_variant **variant);
int attn_variant_any(const attn_variant *const *parts, int n, attn_variant **variant);
const char *attn_variant_text(const attn_variant *variant);
attn_variant *attn_variant_retain(attn_variant *variant);
void attn_variant_release(attn_variant *variant);
typedef struct attn_symbol {
    uint32_t size;
    int32_t type;
    int32_t rank;
    int32_t lo, hi;
    char name[48];
} attn_symbol;
int attn_variant_symbol(const attn_variant *variant, int i, attn_symbol *symbol);
typedef struct attn_capture {
    const char *name;
    const attn_tensor *value;
    const attn_tensor *grad;
    double number;
} attn_capture;
typedef struct attn_window {
    uint32_t size, flags;
    int64_t b, h, i, k;
    int64_t rows, columns;
    int64_t nq, nk;
    int64_t nh, hk, batch;
    const attn_capture *captures;
    int64_t n_captures;
} attn_window;
int attn_variant_sample(const attn_variant *variant, const attn_window *window, const float *s,
    float *scores);
int64_t attn_variant_picture(const attn_variant *variant, const attn_window *window, char *text,
    size_t capacity);
typedef struct attn_graph attn_graph;
typedef struct attn_node {
    uint32_t size;
    int32_t op;
    int32_t type;
    int32_t constant;
    double value;
    int32_t symbol;
    int32_t n_args;
    int32_t args[4];
} attn_node;
int attn_graph_new(attn_graph **graph);
void attn_graph_release(attn_graph *graph);
int attn_op_find(const char *name);
const char *attn_op_name(int op);
int attn_graph_leaf(attn_graph *graph, const char *name);
int attn_graph_number(attn_graph *graph, double x);
int attn_graph_bool(attn_graph *graph, int x);
int attn_graph_param(attn_graph *graph, const char *name, int type);
int attn_graph_tensor(attn_graph *graph, const char *name, int type, int rank, int32_t lo,
    int32_t hi);
int attn_graph_load(attn_graph *graph, int symbol, const int32_t *indices, int n);
int attn_graph_op(attn_graph *graph, int op, int a, int b, int c);
int attn_graph_node(const attn_graph *graph, int node, attn_node *info);
int64_t attn_graph_text(const attn_graph *graph, int node, char *text, size_t capacity);
int attn_graph_finish(attn_graph *graph, int node, attn_variant **variant);
typedef enum attn_direction {
    ATTN_FORWARD = 1,
    ATTN_BACKWARD = 2
} attn_direction;
typedef enum attn_flag {
    ATTN_SCALE_GIVEN = 1,
    ATTN_DETERMINISTIC = 2,
    ATTN_BATCH_INVARIANT = 4,
    ATTN_TOP_LEFT = 8
} attn_flag;
typedef struct attn_blocks {
    uint32_t size, reserved;
    int64_t bm, bn;
    const attn_tensor *counts;
    const attn_tensor *indices;
} attn_blocks;
typedef struct attn_call {
    uint32_t size, flags;
    double scale;
    double dropout;
    uint64_t seed;
    const uint64_t *seed_at;
    uint32_t offset;
    uint32_t alignment;
    int64_t b0, h0, i0, k0;
    int64_t batch, nh, hk, nq, nk;
    const attn_tensor *q;
    const attn_tensor *k;
    const attn_tensor *v;
    const attn_tensor *sink;
    const attn_tensor *q_offsets;
    const attn_tensor *k_offsets;
    const attn_tensor *q_used;
    const attn_tensor *k_used;
    const attn_tensor *q_scale;
    const attn_tensor *k_scale;
    const attn_tensor *v_scale;
    const attn_blocks *blocks;
    int64_t q_longest, k_longest;
    const attn_tensor *o;
    const attn_tensor *lse;
    const attn_tensor *dout;
    const attn_tensor *dlse;
    const attn_tensor *dq, *dk, *dv;
    const attn_tensor *dsink;
    const attn_capture *captures;
    int64_t n_captures;
} attn_call;
typedef struct attn_plan attn_plan;
typedef struct attn_plan_info {
    uint32_t size;
    uint32_t block;
    uint64_t workspace;
    double flops;
    double bytes;
    int64_t blocks, blocks_part, blocks_full;
    char kernel[64];
} attn_plan_info;
int attn_plan_new(attn_device *device, int direction, const attn_call *shapes,
    const attn_variant *variant, attn_plan **plan);
int attn_plan_query(const attn_plan *plan, attn_plan_info *info);
attn_plan *attn_plan_retain(attn_plan *plan);
void attn_plan_release(attn_plan *plan);
int attn_run(const attn_plan *plan, const attn_call *call, void *workspace, void *stream);
int attn_merge(attn_device *device, int n, const attn_tensor *const *o,
    const attn_tensor *const *lse, const attn_tensor *sink, const attn_tensor *o_out,
    const attn_tensor *lse_out, void *stream);
int attn_dropout(attn_device *device, const attn_call *call, const attn_tensor *keep, void *stream);
int attn_bundle_write(const attn_device *device, const char *path);
int attn_bundle_open(const char *path);
typedef struct attn_file attn_file;
int attn_file_open(const char *path, attn_file **file);
int attn_file_parse(const char *kind, const void *bytes, size_t n, attn_file **file);
int64_t attn_file_count(const attn_file *file);
int attn_file_tensor(const attn_file *file, int64_t i, const char **name, attn_tensor *tensor);
void attn_file_release(attn_file *file);
int attn_file_save_npy(const char *path, const attn_tensor *tensor);
int attn_file_save_safetensors(const char *path, int64_t n, const char *const *names,
    const attn_tensor *const *tensors);
]]

return M
