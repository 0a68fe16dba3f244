-- attention.lua: attn.attention and the call object it returns; attn.merge.
--
-- Who calls it: attn.lua. A call is put together once and used forward and backward:
--
--     options.lua -> attn_call c -> plan (cached by everything but pointers and run-time numbers)
--                        |                      |
--                        +------ attn_run ------+---- o, call.lse
--                        +-- dout, dq, captures' grads --- attn_run ---- g
--
-- One workspace per stream grows to what the largest plan needs.

local bit = require 'bit'
local ffi = require 'ffi'
local base = require 'attn.ffi'
local words = require 'attn.words'
local tensor = require 'attn.tensor'
local symbol = require 'attn.symbol'
local load = require 'attn.load'
local variants = require 'attn.variants'
local options = require 'attn.options'
local key_of = require 'attn.key'
local C, check, fail = base.C, base.check, base.fail
local put, want_tensor = options.put, options.want_tensor
local band, bor = bit.band, bit.bor
local address_t, void_p = ffi.typeof 'uintptr_t', ffi.typeof 'void *'
local call_t, types = ffi.typeof 'attn_call', tensor.types

local M = {}

-- -- Plans and workspaces -----------------------------------------------------------------------

local MAX_PLANS = 64
local plans, n_plans, clock = {}, 0, 0 -- variant's text -> key -> {handle, workspace, used}
local workspaces = {} -- device -> stream's address -> {tensor, bytes, data}

local function forget_oldest()
    local oldest, its_text, its_key
    for text, of_text in pairs(plans) do
        for key, plan in pairs(of_text) do
            if not oldest or plan.used < oldest.used then
                oldest, its_text, its_key = plan, text, key
            end
        end
    end
    plans[its_text][its_key] = nil
    if next(plans[its_text]) == nil then
        plans[its_text] = nil
    end
    n_plans = n_plans - 1
end

local plan_box = ffi.new 'attn_plan *[1]'
local plan_info = ffi.new 'attn_plan_info'
plan_info.size = ffi.sizeof(plan_info)

local function new_plan(call, c, direction)
    check(C.attn_plan_new(call.device.handle, direction, c, call.variant.handle, plan_box))
    local plan = {handle = ffi.gc(plan_box[0], C.attn_plan_release)}
    check(C.attn_plan_query(plan.handle, plan_info))
    plan.workspace = tonumber(plan_info.workspace)
    if n_plans == MAX_PLANS then
        forget_oldest()
    end
    n_plans = n_plans + 1
    return plan
end

local function plan_for(call, c, direction, grads)
    local text, its_key = call.variant.text, key_of(call, c, direction, grads)
    local of_text = plans[text]
    local plan = of_text and of_text[its_key]
    if not plan then
        plan = new_plan(call, c, direction)
        plans[text] = plans[text] or {}
        plans[text][its_key] = plan
    end
    clock = clock + 1
    plan.used = clock
    return plan
end

-- Runs on one stream take turns with their workspace; on several streams they need several.
local function workspace_for(call, plan)
    local stream = ffi.cast(void_p, call.stream)
    local address = tonumber(ffi.cast(address_t, stream))
    local of_device = workspaces[call.device]
    if not of_device then
        of_device = {}
        workspaces[call.device] = of_device
    end
    local work = of_device[address]
    if not work or work.bytes < plan.workspace then
        if work then
            check(C.attn_stream_sync(call.device.handle, stream))
            work.tensor:free()
            of_device[address] = nil
        end
        local t = tensor.empty({plan.workspace}, {dtype = 'u8', device = call.device})
        work = {tensor = t, bytes = plan.workspace, data = tensor.c(t).data}
        of_device[address] = work
    end
    return work.data
end

local function address(t)
    return t and tonumber(ffi.cast(address_t, t.head.data) % 16) or 0
end

-- The largest power of two up to 16 that divides the addresses of the tensors of which kernels load
-- many elements at once.
local function alignment_of(keep)
    local low = bor(16, address(keep.q), address(keep.k), address(keep.v), address(keep.o))
    if keep.dout then
        low = bor(low, address(keep.dout), address(keep.dq), address(keep.dk), address(keep.dv))
    end
    return band(low, -low)
end

-- Releases plans and workspaces; they come back when they are needed.
function M.forget()
    plans, n_plans, workspaces = {}, 0, {}
end

-- Plans and runs c, with the captures' gradients in grads (by name).
local function run(call, c, direction, grads)
    local captures = variants.bind(call.variant, call.device, grads)
    call.captures = captures -- alive while the device may read them
    c.captures, c.n_captures = captures.array, captures.n
    c.alignment = alignment_of(call.keep)
    local plan = plan_for(call, c, direction, grads)
    check(C.attn_run(plan.handle, c, workspace_for(call, plan), call.stream))
    return plan
end

-- -- The call -----------------------------------------------------------------------------------

local Call = {}
Call.__index = Call

local function alive(call)
    if not call.c then
        fail('INVALID', 'call', 'the call was freed')
    end
    return call
end

-- The canonical text of the variant.
function Call:text()
    return tostring(alive(self).variant)
end

-- What the plan knows, as numbers; kernel: a string.
function Call:info()
    check(C.attn_plan_query(alive(self).plan.handle, plan_info))
    local info = {kernel = ffi.string(plan_info.kernel), device = self.device.name}
    for _, name in ipairs {'workspace', 'flops', 'bytes', 'block', 'blocks', 'blocks_part',
        'blocks_full'} do
        info[name] = tonumber(plan_info[name])
    end
    return info
end

-- Releases the call's own memory now: lse and what was made from tables. o stays.
function Call:free()
    if self.c then
        for _, t in ipairs(self.own) do
            t:free()
        end
        self.c, self.keep, self.own, self.plan = nil, nil, nil, nil
    end
end

-- Names under which the variant reads x: a tensor, a parameter, or such a name.
local function names_of(call, position, x)
    local names = {}
    for name, value in pairs(call.variant.captures) do
        local is_it = rawequal(value, x) or type(x) == 'string' and x == name
            or tensor.is(x) and tensor.is(value) and load.memory_key(x) == load.memory_key(value)
        if is_it then
            names[#names + 1] = name
        end
    end
    if not names[1] then
        fail('CAPTURE', 'wrt', ('wrt[%d], %s, is nothing that the variant reads'):format(position,
            tensor.is(x) and 'a tensor' or symbol.describe(x)))
    end
    return names
end

-- One gradient tensor per name: name -> tensor, and the names of each wrt.
local function capture_grads(call, wrt)
    local grads, names = {}, {}
    for i, x in ipairs(wrt) do
        names[i] = names_of(call, i, x)
        for _, name in ipairs(names[i]) do
            local value = call.variant.captures[name]
            if tensor.is(value) and not tensor.dtype_of(value).float then
                fail('CAPTURE', 'wrt', ('wrt[%d], %s, is %s: integers and conditions have no '
                    .. 'gradient'):format(i, name, value.dtype))
            end
            grads[name] = grads[name] or tensor.empty(tensor.is(value) and value.shape or {1},
                {device = call.device})
        end
    end
    return grads, names
end

-- g[x] for every x in wrt: a tensor, or for a parameter a number.
local function collect_grads(call, g, wrt, grads, names)
    if wrt[1] and call.stream ~= nil then -- what is read below was computed there
        check(C.attn_stream_sync(call.device.handle, call.stream))
    end
    for i, x in ipairs(wrt) do
        local total = grads[names[i][1]]
        if #names[i] > 1 then
            total = total:copy()
            for j = 2, #names[i] do
                total:add_(grads[names[i][j]])
            end
        end
        g[x] = tensor.is(call.variant.captures[names[i][1]]) and total or total[0]
    end
end

-- A call for the other direction, with the tensors of this one, none of which may be freed by now.
local function turn_round(call)
    local back = {c = call_t(call.c), more = true, device = call.device, stream = call.stream,
        variant = call.variant, blocks = call.blocks, keep = {}}
    for name, t in pairs(call.keep) do
        if t.storage.live == 0 then
            fail('INVALID', name, ('%s was freed, and backward reads it'):format(name))
        end
        back.keep[name] = t
    end
    return back
end

-- Results of FP8 are bf16.
local function result_type(t)
    local dtype = tensor.dtype_of(t)
    return dtype.float and dtype.bits == 8 and types.bf16 or dtype
end

-- Gradients of sum(o * dout) + sum(lse * dlse): g.q g.k g.v, g.sink if there is a sink, and g[x]
-- for every x in wrt: tensors and parameters that the variant reads, or their names.
function Call:backward(dout, wrt, dlse)
    alive(self)
    wrt = options.want('table', 'wrt', wrt or {})
    local back = turn_round(self)
    local keep, c, g = self.keep, back.c, {}
    c.dout = put(back, 'dout', dout)
    if dlse ~= nil then
        c.dlse = put(back, 'dlse', dlse)
    end
    for _, name in ipairs {'q', 'k', 'v', 'sink'} do
        local t = keep[name]
        if t then
            g[name] = tensor.empty(t.shape, {dtype = result_type(t).name, device = self.device})
            c['d' .. name] = put(back, 'd' .. name, g[name])
        end
    end
    local grads, names = capture_grads(self, wrt)
    run(back, c, C.ATTN_BACKWARD, grads)
    collect_grads(self, g, wrt, grads, names)
    return g
end

-- -- attn.attention -----------------------------------------------------------------------------

-- Refuses a tensor of a ready-made variant that has not the call's sizes; its loads would give 0
-- there. Lengths of packed sequences are known to the device alone.
local function check_axes(call)
    if next(call.variant.axes) == nil then
        return
    end
    local c, q, k = call.c, call.keep.q.shape, call.keep.k.shape
    local packed_q, packed_k = #q == 3, #k == 3
    local sizes = {
        batch = #q == 4 and q[1] or #k == 4 and k[1] or nil,
        nh = q[2],
        nq = not packed_q and q[3] or nil,
        nk = not packed_k and k[3] or nil,
    }
    for name, size in pairs(sizes) do
        sizes[name] = c[name] > 0 and tonumber(c[name]) or size
    end
    for name, axes in pairs(call.variant.axes) do
        local shape = call.variant.captures[name].shape
        for i, size in ipairs(axes) do
            if size and sizes[size] and shape[i] ~= sizes[size] then
                fail('SHAPE', 'captures.' .. name, ('axis %d of %s has extent %d, and the call has '
                    .. '%s %d'):format(i - 1, name, shape[i], size, sizes[size]))
            end
        end
    end
end

local plain -- the variant that leaves scores as they are
local none = {}

-- o and lse for q and v; out: the tensor for o, if there is one.
local function results(device, q, v, out)
    local n, last, e = q.head.ndim, v.head.ndim - 1, q.extent
    if n ~= 3 and n ~= 4 then
        fail('SHAPE', 'q', ('q has rank %d: [B][H][N][D], or packed [T][H][D], is wanted')
            :format(n))
    end
    local a, b, c = tonumber(e[0]), tonumber(e[1]), tonumber(e[2])
    local d = last < 0 and 1 or tonumber(v.extent[last])
    -- Backward takes exp(score - lse): an f32 lse of large scores would spoil the oracle.
    local exact = device.name == 'ref' and types.f64 or types.f32
    if n == 3 then
        return out or tensor.compact(result_type(q), device, 3, a, b, d, 1),
            tensor.compact(exact, device, 2, b, a, 1, 1)
    end
    return out or tensor.compact(result_type(q), device, 4, a, b, c, d),
        tensor.compact(exact, device, 3, a, b, c, 1)
end

local function new_call(q, k, v)
    local c = call_t()
    c.size = ffi.sizeof(call_t)
    local device = tensor.device_of(want_tensor('q', q))
    local call = setmetatable({c = c, device = device, own = {}, lse = false, plan = false,
        variant = false, more = false, keep = {q = q, k = k, v = v, o = false, lse = false}}, Call)
    c.q, c.k, c.v = put(call, 'q', q), put(call, 'k', k), put(call, 'v', v)
    return call
end

-- o = softmax(score(scale * q k^T)) v. Returns o and the call.
function M.attention(q, k, v, opt)
    opt = options.want('table', 'opt', opt or none)
    local call = new_call(q, k, v)
    local c, device = call.c, call.device
    options.read(call, opt)
    plain = plain or variants.of {}
    call.variant = opt.variant ~= nil and variants.of(opt.variant) or plain
    check_axes(call)
    local o, lse = results(device, q, v, opt.out ~= nil and want_tensor('out', opt.out))
    call.own[#call.own + 1], call.lse = lse, lse
    c.o, c.lse = put(call, 'o', o), put(call, 'lse', lse)
    call.plan = run(call, c, C.ATTN_FORWARD)
    return o, call
end

-- -- attn.merge ---------------------------------------------------------------------------------

-- Joins results over disjoint keys: parts is a list of {o, lse}, made without sink. opt.sink:
-- merged here, once. Returns o, lse.
function M.merge(parts, opt)
    options.want('table', 'parts', parts)
    opt = options.want('table', 'opt', opt or {})
    words.check_names('attn.merge', opt, {'sink'})
    local n = #parts
    local outs = ffi.new('const attn_tensor *[?]', n + 1)
    local lses = ffi.new('const attn_tensor *[?]', n + 1)
    local call = {keep = {}, own = {}}
    for i, part in ipairs(parts) do
        local o, lse = options.want('table', 'parts', part)[1], part[2]
        if not tensor.is(o) or not tensor.is(lse) then
            fail('INVALID', 'parts', ('parts[%d] is no pair {o, lse} of tensors'):format(i))
        end
        call.device = call.device or tensor.device_of(o)
        outs[i - 1], lses[i - 1] = put(call, 'o', o), put(call, 'lse', lse)
    end
    if n == 0 then
        fail('INVALID', 'parts', 'parts is empty: at least one pair {o, lse} is wanted')
    end
    local function like(t)
        return tensor.empty(t.shape, {dtype = t.dtype, device = call.device})
    end
    local o, lse = like(parts[1][1]), like(parts[1][2])
    local sink = opt.sink ~= nil and options.put_list(call, 'sink', opt.sink, 'f32') or nil
    check(C.attn_merge(call.device.handle, n, outs, lses, sink, tensor.c(o), tensor.c(lse), nil))
    return o, lse
end

return M
