-- key.lua: what a plan depends on besides its variant, as a string: the key of kept plans.
--
-- Who calls it: attention.lua, at every call, so it is made in few steps: a struct is filled, and
-- its bytes are the string. Most calls end before `more`.
--
--     | device direction flags ... | q | k | v | o | lse | other tensors, captures | numbers |
--                                    '-- rank and type, extents

local ffi = require 'ffi'
local tensor = require 'attn.tensor'

ffi.cdef [[
typedef struct attn_lua_kind { int64_t of_elements, extent[4]; } attn_lua_kind;
typedef struct attn_lua_key {
    intptr_t device;
    double direction, flags, dropout, alignment, bm, bn;
    attn_lua_kind q, k, v, o, lse, more[64 + 17];
    int64_t numbers[11];
} attn_lua_key;
]]
local address_t, int64_p = ffi.typeof 'uintptr_t', ffi.typeof 'const int64_t *'
local numbers = {'b0', 'h0', 'i0', 'k0', 'batch', 'nh', 'hk', 'nq', 'nk', 'q_longest', 'k_longest'}
local others = {'dout', 'dlse', 'dq', 'dk', 'dv', 'sink', 'dsink', 'q_offsets', 'k_offsets',
    'q_used', 'k_used', 'q_scale', 'k_scale', 'v_scale', 'seed', 'blocks.counts', 'blocks.indices'}
local key = ffi.new 'attn_lua_key'
local FIXED, WHOLE = ffi.offsetof('attn_lua_key', 'more'), ffi.sizeof 'attn_lua_key'
local RANK_AND_TYPE = ffi.offsetof('attn_tensor', 'ndim') / 8

-- No tensor of a call has more than four axes.
local function set_kind(kind, t)
    kind.of_elements = ffi.cast(int64_p, t)[RANK_AND_TYPE]
    ffi.copy(kind.extent, t.extent, 32)
end

local function set_rest(call, c, grads)
    local keep, variant, more = call.keep, call.variant, key.more
    ffi.fill(more, WHOLE - FIXED)
    for i = 1, #numbers do
        key.numbers[i - 1] = c[numbers[i]]
    end
    for i = 1, #others do
        local t = keep[others[i]]
        if t then
            set_kind(more[i - 1], t)
        end
    end
    for i = 1, #variant.symbols do
        local name, kind = variant.symbols[i].name, more[#others + i - 1]
        local value = variant.captures[name]
        if tensor.is(value) then
            set_kind(kind, value)
        else
            kind.extent[0] = type(value) == 'nil' and 1 or 2
        end
        if grads and grads[name] then
            kind.of_elements = -1 - kind.of_elements
        end
    end
end

return function(call, c, direction, grads)
    local keep, blocks = call.keep, call.blocks
    key.device = ffi.cast(address_t, call.device.handle)
    key.direction, key.flags, key.dropout, key.alignment = direction, c.flags, c.dropout,
        c.alignment
    key.bm, key.bn = blocks and blocks.bm or 0, blocks and blocks.bn or 0
    set_kind(key.q, keep.q)
    set_kind(key.k, keep.k)
    set_kind(key.v, keep.v)
    set_kind(key.o, keep.o)
    set_kind(key.lse, keep.lse)
    if call.more or #call.variant.symbols > 0 then
        set_rest(call, c, grads)
        return ffi.string(key, WHOLE)
    end
    return ffi.string(key, FIXED)
end
