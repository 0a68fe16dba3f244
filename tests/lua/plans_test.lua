-- plans_test.lua: what calls share and keep: plans, workspaces, memory. attention_test.lua has what
-- they compute.

local here = arg[0]:match '^(.*/)' or './'
package.path = here .. '?.lua;' .. here .. '../../lua/?.lua;' .. package.path
local test = require 'tap'
local ffi = require 'ffi'
local attn = require 'attn'

local B, H, HK, N, D = 2, 4, 2, 12, 16

local function inputs()
    local q = attn.randn(1, {B, H, N, D}, {seed = 1})
    local k, v = attn.randn(2, {B, HK, N, D}, {seed = 2})
    return q, k, v
end

-- -- Plans and workspaces -------------------------------------------------------------------------

-- attn.attention with some functions of the library replaced, and without plans.
local function attention_with(functions)
    local base, name = require 'attn.ffi', 'attn.attention'
    local C, module = base.C, package.loaded[name]
    base.C = setmetatable(functions, {__index = C})
    package.loaded[name] = nil
    local attention = require(name).attention
    base.C, package.loaded[name] = C, module
    return attention, C
end

test('a second call asks nothing of its plan', function(t)
    local made, asked, C = 0, 0
    local attention
    attention, C = attention_with {
        attn_plan_new = function(...)
            made = made + 1
            return C.attn_plan_new(...)
        end,
        attn_plan_query = function(...)
            asked = asked + 1
            return C.attn_plan_query(...)
        end,
    }
    local q, k, v = inputs()
    for _ = 1, 3 do
        local o, call = attention(q, k, v, {variant = attn.causal})
        call:backward(o)
    end
    t.equal(made, 2)
    t.equal(asked, 2)
end)
test('whatever a plan depends on asks for one of its own', function(t)
    local made = 0
    local attention, C
    attention, C = attention_with {
        attn_plan_new = function(...)
            made = made + 1
            return C.attn_plan_new(...)
        end,
    }
    local q, k, v = inputs()
    local q2, k2, v2 = q:view {B, H, N / 2, 2 * D}, k:view {B, HK, N / 2, 2 * D},
        v:view {B, HK, N / 2, 2 * D}
    local w, w2 = attn.zeros {H}, attn.zeros {H + 1}
    local function by(slopes)
        return attn.variant('s + w[h]', {w = slopes})
    end
    local calls = {
        {q, k, v}, {q2, k2, v2}, {attn.zeros {B, N, H, D}:transpose(1, 2), k, v},
        {q:to 'bf16', k:to 'bf16', v:to 'bf16'},
        {q, k, v, {variant = attn.causal}}, {q, k, v, {variant = attn.window(3, 0)}},
        {q, k, v, {variant = by(w)}}, {q, k, v, {variant = by(w2)}},
        {q, k, v, {top_left = true}}, {q, k, v, {dropout = 0.5}}, {q, k, v, {dropout = 0.25}},
        {q, k, v, {sink = {1, 2, 3, 4}}}, {q, k, v, {k_used = {1, 2}}},
        {q, k, v, {q_used = {1, 2}}}, {q, k, v, {totals = {nh = 8}}},
        {q, k, v, {totals = {nh = 8}, origins = {h = 2}}},
    }
    local wanted = #calls - 1 -- strides are the run's
    for _ = 1, 2 do
        for _, one in ipairs(calls) do
            attention(one[1], one[2], one[3], one[4])
        end
    end
    t.equal(made, wanted)
    local _, call = attention(q, k, v, {variant = by(w)})
    t.equal(made, wanted)
    call:backward(q)
    call:backward(q, {w})
    call:backward(q, {w})
    t.equal(made, wanted + 2)
end)
test('each stream has a workspace of its own', function(t)
    local given, synced, C = {}, 0
    local attention
    attention, C = attention_with {
        attn_run = function(plan, c, work)
            given[#given + 1] = work
            return C.attn_run(plan, c, work, nil)
        end,
        attn_stream_sync = function()
            synced = synced + 1
            return 0
        end,
    }
    local q, k, v = inputs()
    for _, address in ipairs {0, 8, 16, 8, 0} do
        attention(q, k, v, {stream = ffi.cast('void *', address)})
    end
    attention(q, k, v)
    t.ok(given[1] ~= given[2] and given[1] ~= given[3] and given[2] ~= given[3])
    t.ok(given[4] == given[2] and given[5] == given[1] and given[6] == given[1])
    t.equal(synced, 0)
    local long = attn.zeros {8, 8, 300, 128} -- the smaller workspace is awaited
    attention(long, long, long, {stream = ffi.cast('void *', 8)})
    t.equal(synced, 1)
end)
test('a workspace that cannot be had harms no later call', function(t)
    local ask, C = 0
    local attention
    attention, C = attention_with {
        attn_plan_query = function(plan, info)
            local status = C.attn_plan_query(plan, info)
            info.workspace = ask
            return status
        end,
    }
    local q, k, v = inputs()
    ask = 2 ^ 20
    local wanted = attention(q, k, v)
    ask = 2 ^ 60
    t.fails(function() attention(q, k, v, {variant = attn.causal}) end, 'is too large')
    t.equal(attention(q, k, v):max_error(wanted), 0)
end)

-- -- Memory ---------------------------------------------------------------------------------------

test('a thousand calls leave nothing behind', function(t)
    local q, k, v = inputs()
    local rel = attn.zeros {H, N}
    local function step()
        local o, call = attn.attention(q, k, v, {variant = {attn.causal, function(s, _, h, i, j)
            return s + rel[h][i - j]
        end}, sink = {1, 2, 3, 4}})
        local g = call:backward(o, {rel})
        rel:add_(g[rel], -0.01)
        call:free()
    end
    for _ = 1, 100 do
        step()
    end
    local before, before_lua = attn.collect(), collectgarbage 'count'
    for _ = 1, 1000 do
        step()
    end
    local after = attn.collect() -- compiled code may have kept a tensor of an earlier test
    t.ok(after <= before, after - before)
    local grown = collectgarbage 'count' - before_lua
    t.ok(grown < 200, ('%d KiB of Lua'):format(grown))
end)
-- How many plans are kept: memo.lua's trees end in them.
local function kept_plans()
    local _, plans = debug.getupvalue(require('attn.attention').forget, 1)
    local function count(node)
        local n = 0
        for _, below in pairs(node) do
            n = n + (below.handle and 1 or count(below))
        end
        return n
    end
    return count(plans.young) + count(plans.old)
end

test('a thousand packed calls of changing lengths leave nothing behind', function(t)
    local w = attn.zeros {H}
    local variant = attn.variant {attn.causal, function(s, _, h) return s + w[h] end}
    local function step(n)
        local total, part = 4 + n % 150, n * 5 % 4
        local q = attn.zeros {total, H, D}
        local k, v = attn.zeros {total + 1, HK, D}, attn.zeros {total + 1, HK, D}
        local o, call = attn.attention(q, k, v, {variant = variant, q_offsets = {0, part, total},
            k_offsets = {0, part, total + 1}, q_longest = total, k_longest = total + 1})
        call:backward(o, {w})
        if n % 2 == 0 then
            call:free()
        end
    end
    for n = 1, 100 do
        step(n)
    end
    local before, before_lua = attn.collect(), collectgarbage 'count'
    for n = 1, 1000 do
        step(n)
    end
    t.ok(kept_plans() > 32 and kept_plans() <= 64, kept_plans())
    local after = attn.collect() -- compiled code may have kept a tensor of an earlier test
    t.ok(after <= before, after - before)
    local grown = collectgarbage 'count' - before_lua
    t.ok(grown < 400, ('%d KiB of Lua'):format(grown))
end)
test('many shapes, few plans', function(t)
    local before = attn.collect()
    for n = 1, 150 do
        local q = attn.zeros {1, 1, n, 8}
        t.equal(attn.attention(q, q, q, {variant = attn.causal}):max_error(0), 0)
    end
    t.ok(kept_plans() > 32 and kept_plans() <= 64, kept_plans())
    local after = attn.collect()
    t.ok(after <= before, after - before)
end)
test('a memo keeps what was used last', function(t)
    local m = require('attn.memo').new(3)
    m:put({1, 'a'}, 2, 'first')
    for i = 1, 5 do -- the first is asked for in between, so it stays
        m:put({2, i}, 2, i)
        t.equal(m:get({1, 'a'}, 2), 'first')
    end
    t.equal(m:get({2, 5}, 2), 5)
    t.equal(m:get({2, 1}, 2), nil)
    t.equal(m:get({2}, 1), nil)
    t.equal(m:get({2, 5, 1}, 3), nil)
end)
test('a tensor that was moved or freed has no stale kind', function(t)
    local kind_of = require('attn.kind').of
    local a = attn.zeros {300, 2}
    local number = kind_of(a).number
    t.equal(kind_of(attn.zeros {300, 2}).number, number)
    t.ok(kind_of(attn.zeros {300, 3}).number ~= number)
    t.ok(kind_of(a:view {150, 4}).number ~= number)
    for n = 1, 300 do -- more than are kept
        kind_of(attn.zeros {n})
    end
    attn.collect()
    local again = kind_of(a)
    t.equal(again.number, kind_of(attn.zeros {300, 2}).number)
    t.equal(again.bytes, 2400)
    a:free()
    a = attn.zeros {300, 2}
    t.fails(function() attn.attention(a, a, a) end, 'rank 2')
end)
test('what a call reads stays alive while the call does', function(t)
    local function make()
        local q, k, v = inputs()
        local rel = attn.randn(1, {H, N}, {seed = 4})
        local o, call = attn.attention(q, k, v, {variant = function(s, _, h, i, j)
            return s + rel[h][math.abs(i - j)]
        end, sink = {1, 1, 1, 1}})
        return call, o.shape
    end
    local call, shape = make()
    local dout = attn.randn(1, shape, {seed = 3})
    local wanted = call:backward(dout, {'rel'})
    attn.collect()
    for _ = 1, 50 do
        attn.zeros {B, H, N, D}:fill(1e6)
    end
    local g = call:backward(dout, {'rel'})
    t.equal(g.q:max_error(wanted.q), 0)
    t.equal(g.rel:max_error(wanted.rel), 0)
end)

test.done()
