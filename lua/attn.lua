-- attn.lua: exact attention and every variant of it, from LuaJIT.
--
--     local attn = require 'attn'
--     local q, k, v = attn.randn(3, {1, 8, 128, 64})
--     local o = attn.attention(q, k, v, {variant = {attn.causal, attn.softcap(30)}})
--
-- This file only ties the parts together; docs/lua.md lists the functions and the rules for
-- variants.
--
--     ffi cdef words device                           the library, its errors, its devices
--     tensor*                                         memory, shapes, elements
--     symbol argument load overload guard trace       Lua functions into expression graphs
--     variants                                        objects, lists, ready-made ones
--     options attention                               calls, plans, gradients
--     picture image                                   masks and scores to look at

local base = require 'attn.ffi'
local device = require 'attn.device'
local tensor = require 'attn.tensor'
local argument = require 'attn.argument'
local overload = require 'attn.overload'
local variants = require 'attn.variants'
local attention = require 'attn.attention'
local picture = require 'attn.picture'

local attn = {}

-- Functions that variants are written with: where lt le eq all, exp log max floor ...
for name, f in pairs(overload.functions) do
    attn[name] = f
end

-- Ready-made variants: causal window alibi softcap prefix document dilated first_keys bias
-- relative.
for name, variant in pairs(variants.ready) do
    attn[name] = variant
end

attn.tensor, attn.zeros, attn.empty = tensor.tensor, tensor.zeros, tensor.empty
attn.randn, attn.wrap = tensor.randn, tensor.wrap
attn.load, attn.save = tensor.load, tensor.save
attn.device, attn.devices = device.open, device.list
attn.open_bundle = device.open_bundle
attn.variant, attn.param = variants.variant, argument.param
attn.attention, attn.merge = attention.attention, attention.merge
attn.picture = picture.picture

-- Conditions inside a variant function: true where any (all) of them hold. Variants: visible where
-- any (all) of them are.
for _, name in ipairs {'any', 'all'} do
    attn[name] = function(...)
        return (variants.among(...) and variants or overload.functions)[name](...)
    end
end

local function result_of(ok, ...)
    if ok then
        return ...
    end
    return nil, tostring((...)), (...)
end

-- f(...), or nil, the sentence and the error object.
function attn.try(f, ...)
    return result_of(pcall(f, ...))
end

-- Releases all memory that nothing refers to, kept plans and workspaces too; returns the bytes of
-- tensors that stay.
function attn.collect()
    attention.forget()
    return tensor.collect()
end

-- "0.1.0"
function attn.version()
    return base.version
end

return attn
