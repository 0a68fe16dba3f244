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
local C, check, fail = base.C, base.check, base.fail
local put, want_tensor = options.put, options.want_tensor
local band, bor = bit.band, bit.bor

local M = {}

-- -- Plans and workspaces -----------------------------------------------------------------------

local MAX_PLANS = 64
local plans, n_plans, clock = {}, 0, 0 -- key -> {handle, workspace, used}
local workspaces = {} -- device -> stream's address -> u8 tensor

local function forget_oldest()
    local oldest
    for key, plan in pairs(plans) do
        if not oldest or plan.used < plans[oldest].used then
            oldest = key
        end
    end
    plans[oldest] = nil
    n_plans = n_plans - 1
end

local function shape_key(name, t)
    return ('%s %s %s'):format(name, t.dtype, table.concat(t.shape, ' '))
end

-- Everything a plan may depend on.
local function key_of(call, c, direction, grads)
    local parts = {direction, call.device.name, tostring(call.device.handle), c.flags,
        ('%.17g'):format(c.dropout), c.alignment, tostring(call.variant)}
    for _, name in ipairs {'b0', 'h0', 'i0', 'k0', 'batch', 'nh', 'hk', 'nq', 'nk', 'q_longest',
        'k_longest'} do
        parts[#parts + 1] = tonumber(c[name])
    end
    if call.blocks then
        parts[#parts + 1] = ('blocks %d %d'):format(tonumber(call.blocks.bm),
            tonumber(call.blocks.bn))
    end
    local tensors = {}
    for name, t in pairs(call.keep) do
        tensors[#tensors + 1] = shape_key(name, t)
    end
    for name, value in pairs(call.variant.captures) do
        local what = tensor.is(value) and shape_key('captures.' .. name, value) or name
        tensors[#tensors + 1] = what .. (grads and grads[name] and ' grad' or '')
    end
    table.sort(tensors)
    return table.concat(parts, ',') .. ';' .. table.concat(tensors, ',')
end

local plan_box = ffi.new 'attn_plan *[1]'
local plan_info = ffi.new 'attn_plan_info'
plan_info.size = ffi.sizeof(plan_info)

local function plan_for(call, c, direction, grads)
    local key = key_of(call, c, direction, grads)
    local plan = plans[key]
    if not plan then
        check(C.attn_plan_new(call.device.handle, direction, c, call.variant.handle, plan_box))
        plan = {handle = ffi.gc(plan_box[0], C.attn_plan_release)}
        check(C.attn_plan_query(plan.handle, plan_info))
        plan.workspace = tonumber(plan_info.workspace)
        if n_plans == MAX_PLANS then
            forget_oldest()
        end
        plans[key], n_plans = plan, n_plans + 1
    end
    clock = clock + 1
    plan.used = clock
    return plan
end

-- Runs on one stream take turns with their workspace; on several streams they need several.
local function workspace_for(call, plan)
    local stream = ffi.cast('void *', call.stream)
    local address = tonumber(ffi.cast('uintptr_t', stream))
    local of_device = workspaces[call.device] or {}
    local work = of_device[address]
    if not work or work.bytes < plan.workspace then
        if work then
            check(C.attn_stream_sync(call.device.handle, stream))
            work:free()
            of_device[address] = nil
        end
        work = tensor.empty({plan.workspace}, {dtype = 'u8', device = call.device})
        workspaces[call.device], of_device[address] = of_device, work
    end
    return tensor.c(work).data
end

local placed = {'q', 'k', 'v', 'o', 'dout', 'dq', 'dk', 'dv'}

-- The largest power of two up to 16 that divides the addresses of the call's tensors.
local function alignment_of(call)
    local low = 16
    for _, name in ipairs(placed) do
        local t = call.keep[name]
        if t then
            low = bor(low, tonumber(ffi.cast('uintptr_t', t.head.data) % 16))
        end
    end
    return band(low, -low)
end

-- Releases plans and workspaces; they come back when they are needed.
function M.forget()
    plans, n_plans, workspaces = {}, 0, {}
end

-- Plans and runs c, with the captures' gradients in grads (by name).
local function run(call, c, direction, grads)
    call.captures = variants.bind(call.variant, call.device, grads)
    c.captures, c.n_captures = call.captures.array, call.captures.n
    c.alignment = alignment_of(call)
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
    local back = {c = ffi.new('attn_call', call.c), device = call.device, stream = call.stream,
        variant = call.variant, blocks = call.blocks, keep = {}}
    for name, t in pairs(call.keep) do
        if t.storage.live == 0 then
            fail('INVALID', name, ('%s was freed, and backward reads it'):format(name))
        end
        back.keep[name] = t
    end
    return back
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
            local dtype = t.dtype:find '^e' and 'bf16' or t.dtype
            g[name] = tensor.empty(t.shape, {dtype = dtype, device = self.device})
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

local plain

local function result_shapes(q, v)
    local o, n = q.shape, #q.shape
    if n ~= 3 and n ~= 4 then
        fail('SHAPE', 'q', ('q has rank %d: [B][H][N][D], or packed [T][H][D], is wanted')
            :format(n))
    end
    local lse = n == 4 and {o[1], o[2], o[3]} or {o[2], o[1]}
    o[n] = v.shape[#v.shape] or 1
    return o, lse
end

local function new_call(q, k, v)
    local c = ffi.new 'attn_call'
    c.size = ffi.sizeof(c)
    local device = tensor.device_of(want_tensor('q', q))
    local call = setmetatable({c = c, device = device, keep = {}, own = {}}, Call)
    c.q, c.k, c.v = put(call, 'q', q), put(call, 'k', k), put(call, 'v', v)
    return call
end

-- o = softmax(score(scale * q k^T)) v. Returns o and the call.
function M.attention(q, k, v, opt)
    opt = options.want('table', 'opt', opt or {})
    local call = new_call(q, k, v)
    options.read(call, opt)
    plain = plain or variants.of {}
    call.variant = opt.variant ~= nil and variants.of(opt.variant) or plain
    local shape, lse_shape = result_shapes(q, v)
    check_axes(call)
    -- Backward takes exp(score - lse): an f32 lse of large scores would spoil the oracle.
    local exact = call.device.name == 'ref'
    local dtype = q.dtype:find '^e' and 'bf16' or q.dtype
    local o = opt.out ~= nil and want_tensor('out', opt.out)
        or tensor.empty(shape, {dtype = dtype, device = call.device})
    local lse = tensor.empty(lse_shape, {dtype = exact and 'f64' or 'f32', device = call.device})
    call.own[#call.own + 1], call.lse = lse, lse
    call.c.o, call.c.lse = put(call, 'o', o), put(call, 'lse', lse)
    call.plan = run(call, call.c, C.ATTN_FORWARD)
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
