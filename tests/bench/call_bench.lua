-- call_bench.lua: what a call costs besides its engine, and what a variant costs a block.
--
--     luajit tests/bench/call_bench.lua [length [dimension [rounds]]]     4096 128 3, f32
--
-- CPU time of one thread, in microseconds. Calls: the best of several rounds of many, of a problem
-- of one query and one key, for which the engine has next to nothing to do. Blocks: 128 queries by
-- 128 keys, medians of rounds in which the variants take turns, and their ratio to causal's.

local here = arg[0]:match '^(.*/)' or './'
package.path = here .. '../../lua/?.lua;' .. package.path
local ffi = require 'ffi'
local attn = require 'attn'
local base = require 'attn.ffi'
local C, check = base.C, base.check

ffi.cdef [[
typedef struct { long seconds, nanoseconds; } bench_time;
int clock_gettime(int clock, bench_time *time);
]]
local now = ffi.new 'bench_time'
local PROCESS_CPU = 2

local function microseconds()
    ffi.C.clock_gettime(PROCESS_CPU, now)
    return tonumber(now.seconds) * 1e6 + tonumber(now.nanoseconds) * 1e-3
end

-- -- Calls --------------------------------------------------------------------------------------

local function time_of(f, n)
    local best = math.huge
    for _ = 1, 15 do
        local begin = microseconds()
        for _ = 1, n do
            f()
        end
        best = math.min(best, (microseconds() - begin) / n)
    end
    return best
end

local function report(what, f, n)
    local time = time_of(f, n or 4000)
    print(('%-52s %8.2f us'):format(what, time))
    return time
end

-- A plan for an emulated chip is made as one for a GPU: text, key, and the kernel that is loaded.
local function on_a_chip(q, box)
    local chip = attn.device 'emu:gfx942'
    local head = ffi.new 'attn_tensor'
    ffi.copy(head, q.head, ffi.sizeof(head))
    head.data, head.device.device_type = nil, 0
    local shapes = ffi.new 'attn_call'
    shapes.size = ffi.sizeof(shapes)
    shapes.q, shapes.k, shapes.v, shapes.o = head, head, head, head
    report('attn_plan_new, causal, a chip whose kernel is known', function()
        check(C.attn_plan_new(chip.handle, C.ATTN_FORWARD, shapes, attn.causal.handle, box))
        C.attn_plan_release(box[0])
    end, 400)
end

local function calls()
    local device = attn.device('cpu', {threads = 1})
    local q, k, v = attn.randn(3, {1, 1, 1, 8}, {device = device})
    local causal = {variant = attn.causal}
    local mixed = attn.variant {attn.alibi(8), attn.window(1024, 0), attn.softcap(30)}
    local o, call = attn.attention(q, k, v, causal)
    local box, info = ffi.new 'attn_plan *[1]', ffi.new 'attn_plan_info'
    info.size = ffi.sizeof(info)
    check(C.attn_plan_new(device.handle, C.ATTN_FORWARD, call.c, attn.causal.handle, box))
    local plan = ffi.gc(box[0], C.attn_plan_release)
    check(C.attn_plan_query(plan, info))
    local memory = attn.empty({tonumber(info.workspace)}, {dtype = 'u8', device = device})
    local workspace = memory.head.data
    local engine = report('attn_run: the engine and its checks', function()
        check(C.attn_run(plan, call.c, workspace, nil))
    end)
    local whole = report('attn.attention, causal, a known plan', function()
        attn.attention(q, k, v, causal)
    end)
    print(('%-52s %8.2f us'):format('    of which not the engine', whole - engine))
    local into = {variant = attn.causal, out = o}
    whole = report('the same into a given tensor, freed at once', function()
        local _, one = attn.attention(q, k, v, into)
        one:free()
    end)
    print(('%-52s %8.2f us'):format('    of which not the engine', whole - engine))
    for _, one in ipairs {
        {'two ready-made parts in a list', {variant = {attn.alibi(8), attn.causal}}},
        {'slopes in a tensor', {variant = attn.alibi(attn.zeros({1}, {device = device}))}},
        {'a scale', {variant = attn.causal, scale = 0.5}},
    } do
        report('the same with ' .. one[1], function()
            attn.attention(q, k, v, one[2])
        end)
    end
    report('call:backward', function()
        call:backward(o)
    end)
    report('attn_plan_new, causal', function()
        check(C.attn_plan_new(device.handle, C.ATTN_FORWARD, call.c, attn.causal.handle, box))
        C.attn_plan_release(box[0])
    end)
    report('attn_plan_new, ALiBi, window and softcap', function()
        check(C.attn_plan_new(device.handle, C.ATTN_FORWARD, call.c, mixed.handle, box))
        C.attn_plan_release(box[0])
    end)
    on_a_chip(q, box)
    report('a function traced: s - 0.1 * (q - k), masked by if', function()
        attn.variant(function(s, _, _, i, j)
            if j > i then
                return false
            end
            return s - 0.1 * (i - j)
        end)
    end, 400)
end

-- -- Blocks -------------------------------------------------------------------------------------

local function median(list)
    table.sort(list)
    return list[math.floor((#list + 1) / 2)]
end

local function blocks(length, dimension, rounds)
    local device = attn.device('cpu', {threads = 1})
    local q, k, v, dout = attn.randn(4, {1, 1, length, dimension}, {device = device})
    local window = math.floor(length / 4)
    local relative = attn.zeros({1, 513}, {device = device})
    local list = {
        {'causal', attn.causal},
        {'ALiBi', {attn.alibi(8), attn.causal}},
        {'softcap', {attn.softcap(30), attn.causal}},
        {('window of %d'):format(window), attn.window(window, 0)},
        {'ALiBi, that window, softcap', {attn.alibi(8), attn.window(window, 0), attn.softcap(30)}},
        {'relative, a table of 513', {attn.relative(relative), attn.causal}},
        {'s - log(1 + |q - k|) / 8 in Lua', {attn.causal, function(s, _, _, i, j)
            return s - math.log(1 + math.abs(i - j)) / 8
        end}},
    }
    for _ = 1, rounds do
        for _, one in ipairs(list) do
            one.forward, one.backward = one.forward or {}, one.backward or {}
            local begin = microseconds()
            local o, call = attn.attention(q, k, v, {variant = one[2]})
            local middle = microseconds()
            call:backward(dout)
            local info = call:info()
            local each = 1 / (info.blocks_part + info.blocks_full)
            table.insert(one.backward, (microseconds() - middle) * each)
            table.insert(one.forward, (middle - begin) * each)
            call:free()
            o:free()
        end
    end
    print(('\n%-32s %18s %18s'):format(('f32, N %d, D %d'):format(length, dimension),
        'forward a block', 'backward a block'))
    local first
    for _, one in ipairs(list) do
        local forward, backward = median(one.forward), median(one.backward)
        first = first or {forward, backward}
        print(('%-32s %10.1f us %5.2f %9.1f us %5.2f'):format(one[1], forward, forward / first[1],
            backward, backward / first[2]))
    end
end

calls()
blocks(tonumber(arg[1] or 4096), tonumber(arg[2] or 128), tonumber(arg[3] or 3))
