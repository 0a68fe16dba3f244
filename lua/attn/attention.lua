-- attention.lua: attn.attention and the call object it returns; attn.merge.
--
-- Who calls it: attn.lua. A call is put together once and used forward and backward:
--
--     options.lua -> attn_call c, and the key of what its plan depends on (memo.lua)
--                        |                       |
--                        |       plan, and the kinds of its results: a known problem asks no more
--                        |                       |
--                        +------ attn_run -------+---- o, call.lse
--                        +-- dout, dq, captures' grads --- attn_run ---- g
--
-- One workspace per stream grows to what the largest plan needs.

local ffi = require 'ffi'
local base = require 'attn.ffi'
local words = require 'attn.words'
local memo = require 'attn.memo'
local tensor = require 'attn.tensor'
local symbol = require 'attn.symbol'
local load = require 'attn.load'
local variants = require 'attn.variants'
local options = require 'attn.options'
local storages = require 'attn.storage'
local kind_of = require 'attn.kind'.of
local C, check, fail = base.C, base.check, base.fail
local put, put_result, want_tensor = options.put, options.put_result, options.want_tensor
local like = tensor.like
local min = math.min
local call_t, types = ffi.typeof 'attn_call', tensor.types
local CALL_BYTES = ffi.sizeof(call_t)

local M = {}

local none = {}

-- -- Plans and workspaces -----------------------------------------------------------------------

local MOST_PLANS = 64 -- half of them used last
local plans = memo.new(MOST_PLANS / 2) -- {handle, workspace, alignment, kinds = results' by name}
local workspaces = {} -- device -> stream's address -> {tensor, bytes, data}

local plan_box = ffi.new 'attn_plan *[1]'
local plan_info = ffi.new 'attn_plan_info'
plan_info.size = ffi.sizeof(plan_info)

-- The largest power of two up to 16 that divides the addresses of the tensors of which kernels load
-- many elements at once.
local function alignment_of(keep)
    local least = 16
    for _, name in ipairs {'q', 'k', 'v', 'o', 'dout', 'dq', 'dk', 'dv'} do
        if keep[name] then
            least = min(least, kind_of(keep[name]).alignment)
        end
    end
    return least
end

-- results: the names of those that are made anew at every call.
local function new_plan(call, c, direction, results)
    local alignment, kinds = alignment_of(call.keep), {}
    c.alignment = alignment
    check(C.attn_plan_new(call.device.handle, direction, c, call.variant.handle, plan_box))
    local handle = ffi.gc(plan_box[0], C.attn_plan_release)
    check(C.attn_plan_query(handle, plan_info))
    for _, name in ipairs(results) do
        kinds[name] = kind_of(call.keep[name])
    end
    local plan = {handle = handle, workspace = tonumber(plan_info.workspace),
        alignment = alignment, kinds = kinds}
    plans:put(call.key, #call.key, plan)
    return plan
end

local NO_STREAM = ffi.cast('void *', nil)

-- Runs on one stream take turns with their workspace; on several streams they need several.
local function workspace_for(call, plan)
    local of_device, address = workspaces[call.device], call.stream_number
    if not of_device then
        of_device = {}
        workspaces[call.device] = of_device
    end
    local work = of_device[address]
    if not work or work.bytes < plan.workspace then
        if work then
            check(C.attn_stream_sync(call.device.handle, call.stream or NO_STREAM))
            work.tensor:free()
            of_device[address] = nil
        end
        local t = tensor.empty({plan.workspace}, {dtype = 'u8', device = call.device}, call.stream)
        work = {tensor = t, bytes = plan.workspace, data = tensor.c(t).data}
        of_device[address] = work
    end
    return work
end

-- Releases plans and workspaces; they come back when they are needed.
function M.forget()
    plans, workspaces = memo.new(MOST_PLANS / 2), {}
end

-- What the variant reads, with its gradients in grads (by name), into c and the key.
local function bind(call, c, grads)
    local captures = variants.bind(call.variant, call.device, grads)
    call.captures = captures -- alive while the device may read them
    c.captures, c.n_captures = captures.array, captures.n
    local key, n = call.key, #call.key
    for i, one in ipairs(call.variant.symbols) do
        local value = captures.values[i]
        key[n + 1] = tensor.is(value) and kind_of(value).number or type(value)
        key[n + 2] = grads and grads[one.name] ~= nil or false
        n = n + 2
    end
end

-- The memory that the work on call.stream uses may become garbage before that work ends.
local function note_use(call, work)
    local stream, captures = call.stream, call.captures
    storages.use(work.tensor.storage, stream)
    for _, list in ipairs {call.keep, captures and captures.values, captures and captures.grads} do
        for _, t in pairs(list) do
            if tensor.is(t) then
                storages.use(t.storage, stream)
            end
        end
    end
end

local function run(call, c, plan)
    local work = workspace_for(call, plan)
    c.alignment = plan.alignment
    local status = C.attn_run(plan.handle, c, work.data, call.stream)
    if status < 0 then
        check(status)
    end
    if call.stream ~= nil and not call.device.is_host then
        note_use(call, work)
    end
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
        self.lse:free()
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
                {device = call.device}, call.stream)
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
    local back = {c = call_t(call.c), device = call.device, stream = call.stream, key = {},
        stream_number = call.stream_number, variant = call.variant, blocks = call.blocks, keep = {}}
    for name, t in pairs(call.keep) do
        if not tensor.is_alive(t) then
            fail('INVALID', name, ('%s was freed, and backward reads it'):format(name))
        end
        back.keep[name] = t
    end
    for i, x in ipairs(call.key) do
        back.key[i] = x
    end
    back.key[1] = C.ATTN_BACKWARD
    return back
end

-- Results of FP8 are bf16.
local function result_type(t)
    local dtype = tensor.dtype_of(t)
    return dtype.float and dtype.bits == 8 and types.bf16 or dtype
end

local gradients = {'dq', 'dk', 'dv'}
local gradients_and_sink = {'dq', 'dk', 'dv', 'dsink'}

-- g.q g.k g.v, and g.sink if there is a sink, put into the call.
local function make_gradients(call, c, names, plan)
    local g = {}
    for _, name in ipairs(names) do
        local of = name:sub(2)
        local t = call.keep[of]
        g[of] = plan and like(plan.kinds[name], call.device, call.stream)
            or tensor.empty(t.shape, {dtype = result_type(t).name, device = call.device},
                call.stream)
        c[name] = put_result(call, name, g[of])
    end
    return g
end

-- Gradients of sum(o * dout) + sum(lse * dlse): g.q g.k g.v, g.sink if there is a sink, and g[x]
-- for every x in wrt: tensors and parameters that the variant reads, or their names.
function Call:backward(dout, wrt, dlse)
    alive(self)
    wrt = options.want('table', 'wrt', wrt or none)
    local back = turn_round(self)
    local c, key = back.c, back.key
    c.dout = put(back, 'dout', dout)
    if dlse ~= nil then
        c.dlse = put(back, 'dlse', dlse)
    end
    local grads, names = capture_grads(self, wrt)
    bind(back, c, grads)
    local plan = plans:get(key, #key)
    local results = self.keep.sink and gradients_and_sink or gradients
    local g = make_gradients(back, c, results, plan)
    run(back, c, plan or new_plan(back, c, C.ATTN_BACKWARD, results))
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
local made, made_but_o = {'o', 'lse'}, {'lse'}

-- o and lse; out: the tensor for o, if there is one.
local function results(call, plan, q, v, out)
    local device, stream = call.device, call.stream
    if plan then
        return out or like(plan.kinds.o, device, stream), like(plan.kinds.lse, device, stream)
    end
    local shape, last = q.shape, v.shape
    local n = #shape
    if n ~= 3 and n ~= 4 then
        fail('SHAPE', 'q', ('q has rank %d: [B][H][N][D], or packed [T][H][D], is wanted')
            :format(n))
    end
    local rows = n == 3 and {shape[2], shape[1]} or {shape[1], shape[2], shape[3]}
    shape[n] = last[#last] or 1
    -- Backward takes exp(score - lse): an f32 lse of large scores would spoil the oracle.
    local exact = device.name == 'ref' and 'f64' or 'f32'
    return out or tensor.empty(shape, {dtype = result_type(q).name, device = device}, stream),
        tensor.empty(rows, {dtype = exact, device = device}, stream)
end

local function new_call(q, k, v)
    local c = call_t()
    c.size = CALL_BYTES
    local device = tensor.device_of(want_tensor('q', q))
    local call = setmetatable({c = c, device = device, own = {}, lse = false, plan = false,
        variant = false, stream_number = 0, key = {C.ATTN_FORWARD, '', 0},
        keep = {q = q, k = k, v = v, o = false, lse = false}}, Call)
    c.q, c.k, c.v = put(call, 'q', q), put(call, 'k', k), put(call, 'v', v)
    return call
end

-- o = softmax(score(scale * q k^T)) v. Returns o and the call.
function M.attention(q, k, v, opt)
    opt = options.want('table', 'opt', opt or none)
    local call = new_call(q, k, v)
    local c, key, out = call.c, call.key, opt.out
    options.read(call, opt)
    plain = plain or variants.of {}
    local variant = opt.variant ~= nil and variants.of(opt.variant) or plain
    call.variant, key[2] = variant, variant.text
    if out ~= nil then
        c.o = put_result(call, 'o', want_tensor('out', out))
        key[3] = kind_of(out).number
    end
    if variant.symbols[1] then
        check_axes(call)
        bind(call, c)
    end
    local plan = plans:get(key, #key)
    local o, lse = results(call, plan, q, v, out)
    call.lse = lse
    c.o, c.lse = put_result(call, 'o', o), put_result(call, 'lse', lse)
    plan = plan or new_plan(call, c, C.ATTN_FORWARD, out == nil and made or made_but_o)
    run(call, c, plan)
    call.plan = plan
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
    local call = {keep = {}, own = {}, key = {}}
    for i, part in ipairs(parts) do
        local o, lse = options.want('table', 'parts', part)[1], part[2]
        if not tensor.is(o) or not tensor.is(lse) then
            fail('INVALID', 'parts', ('parts[%d] is no pair {o, lse} of tensors'):format(i))
        end
        call.device = call.device or tensor.device_of(o)
        outs[i - 1], lses[i - 1] = put_result(call, 'o', o), put_result(call, 'lse', lse)
    end
    if n == 0 then
        fail('INVALID', 'parts', 'parts is empty: at least one pair {o, lse} is wanted')
    end
    local function compact(t)
        return tensor.empty(t.shape, {dtype = t.dtype, device = call.device})
    end
    local o, lse = compact(parts[1][1]), compact(parts[1][2])
    local sink = opt.sink ~= nil and options.put_list(call, 'sink', opt.sink, 'f32') or nil
    check(C.attn_merge(call.device.handle, n, outs, lses, sink, tensor.c(o), tensor.c(lse), nil))
    return o, lse
end

return M
