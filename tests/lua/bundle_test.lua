-- bundle_test.lua: kernels that one script has compiled serve another that has no compiler.

local here = arg[0]:match '^(.*/)' or './'
package.path = here .. '?.lua;' .. here .. '../../lua/?.lua;' .. package.path
local test = require 'tap'
local ffi = require 'ffi'
local attn = require 'attn'

ffi.cdef 'int setenv(const char *name, const char *value, int overwrite);'
ffi.C.setenv('ATTN_CACHE', 'none', 1)

local function attention(device)
    local q = attn.randn(1, {1, 2, 40, 32}, {seed = 1, device = device, dtype = 'f16'})
    return attn.attention(q, q, q, {variant = attn.causal}):to 'cpu'
end

test('a bundle: made by a script, used without a compiler', function(t)
    local path, make = os.tmpname(), attn.device 'make:emu:sm_80'
    attention(make)
    make:write_bundle(path)
    ffi.C.setenv('CC', 'no-such-compiler', 1)
    t.fails(function() attention 'emu:sm_80' end, 'could not be started')
    attn.open_bundle(path)
    t.ok(attention 'emu:sm_80':max_error(attention 'cpu') < 2e-3)
    os.remove(path)
    t.fails(function() attn.open_bundle(path) end, 'could not be read')
    t.fails(function() attn.device 'cpu':write_bundle(path) end, 'device cpu computes')
    t.fails(function() attn.open_bundle(1) end, 'path is')
end)

test.done()
