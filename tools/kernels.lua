-- kernels.lua: compiles the standard list of kernels for every target and says what became of them:
-- registers, spills, shared memory and conflicts of its banks (counted by the emulator), waves, the
-- share of matrix products in the inner loop, and of CDNA's how busy the matrix units would be.
-- No chip is needed. In TAP; a line worse than tools/budget.txt fails. As in lib/gpu_fwd.c, what
-- spills gets the next smaller tile; `keys` says which one it is.
--
--     luajit tools/kernels.lua            the lines of tools/kernels.txt that a * marks
--     luajit tools/kernels.lua --long     all of them
--     ... --only gfx942                   those whose name contains a text
--     ... --update                        and writes what was found into tools/budget.txt
--
-- Who calls it: tests/run.sh. Run from the repository's root. Kernels of sm_ targets are NVRTC's,
-- as plans have them; where there is none, nvcc's, else they are skipped. Without clang-22 or 19
-- those of gfx targets are. Without nvdisasm (NVDISASM names it, else it is found on the path or
-- beside nvcc) an sm_ target has no share of matrix products.

local kernel_loop = dofile 'tools/kernel_loop.lua'

local BUDGET = 'tools/budget.txt'
local FEW = 64 -- bytes that a fused thread may spill: lib/gpu_bwd.c's
-- What a budget bounds; a step's keys and a share may not fall, all else may not grow.
local FIGURES = {'keys', 'registers', 'spilled', 'scratch', 'shared', 'conflicts', 'waves',
    'matrix', 'model'}
local MAY_NOT_FALL = {keys = true, waves = true, matrix = true, model = true}

local function run(format, ...)
    local pipe = assert(io.popen('{ ' .. format:format(...) .. '; } 2>&1; echo "status $?"'))
    local text = pipe:read '*a'
    pipe:close()
    local out, status = text:match '^(.*)status (%d+)\n$'
    return tonumber(status) == 0, out or text
end

local function has(program) return (run('command -v %s', program)) end

local function lines_of(path)
    local list = {}
    for line in io.lines(path) do
        if not line:find '^#' and line:find '%S' then list[#list + 1] = line end
    end
    return list
end

-- -- The list -------------------------------------------------------------------------------------

local options = {only = ''}
do
    local i = 1
    while arg[i] do
        if arg[i] == '--only' then
            i = i + 1
            options.only = assert(arg[i], '--only what?')
        else
            options[assert(arg[i]:match '^%-%-(%l+)$', 'kernels.lua: what is ' .. arg[i])] = true
        end
        i = i + 1
    end
end

local list = {}
for _, line in ipairs(lines_of 'tools/kernels.txt') do
    local star, rest = line:match '^(%*?)%s*(.-)%s*$'
    if options.long or star == '*' then list[#list + 1] = (rest:gsub('%s+', ' ')) end
end

local budget = {}
local versions = {} -- of the compilers whose figures these are, by name
do
    local file = io.open(BUDGET)
    for line in file and file:lines() or function() end do
        local compiler, version = line:match '^# (%S+) is version (%S+)$'
        if compiler then versions[compiler] = version end
        local name, rest = line:match '^(.*): (keys .*)$'
        if name then
            budget[name] = {}
            for figure, value in rest:gmatch '(%l+) ([%d.]+)' do
                budget[name][figure] = tonumber(value)
            end
            budget[name].compiler = rest:match 'by (%S+)'
            budget[name].text = rest
        end
    end
    if file then file:close() end
end

-- -- The targets ----------------------------------------------------------------------------------

local folder = assert(select(2, run 'mktemp -d'):match '^/%S+')
assert(run 'sh tools/build.sh')
for _, tool in ipairs {'kernel_job', 'kernel_conflicts', 'kernel_nvrtc'} do
    local ok, out = run('cc -std=c11 -O1 -Ilib tools/%s.c build/libattn.a -lm -ldl -lpthread ' ..
        '-o %s/%s', tool, folder, tool)
    assert(ok, out)
end

local TARGETS, SM, EMULATED, SHARED = {}, {}, {}, {} -- by name but for the first
do
    local ok, all = run('%s/kernel_job', folder)
    assert(ok, all)
    for name, compiler, number, bytes in all:gmatch '(%S+) (%S+) (%d+) (%d+)\n' do
        TARGETS[#TARGETS + 1] = name
        SM[name] = compiler == 'nvrtc'
        EMULATED[name], SHARED[name] = number, tonumber(bytes)
    end
end

-- -- One kernel -----------------------------------------------------------------------------------

local clang = has 'clang-22' and '22' or has 'clang-19' and '19' or nil
local of_sm = run('%s/kernel_nvrtc', folder) and 'nvrtc' or has 'nvcc' and 'nvcc' or nil
-- The options of lib/jit_nvrtc.c and lib/jit_cc.c, with ptxas's words.
local SM_COMMAND = {
    nvrtc = folder .. '/kernel_nvrtc %s/k.cubin hip_kernels/%s --gpu-architecture=%s ' ..
        '--std=c++17 -default-device -fmad=false -ftz=false -prec-div=true --ptxas-options=-v',
    nvcc = 'nvcc -o %s/k.cubin hip_kernels/%s -arch=%s -x cu -std=c++17 -cubin -O3 -fmad=false ' ..
        '-Xptxas -v',
}

-- Waves of a SIMD (of a quarter of an SM) at once.
local function waves(target, warps, registers, shared)
    if SM[target] then
        local by_registers = math.floor(65536 / (math.ceil(registers / 8) * 8 * 32 * warps))
        return math.min(by_registers, math.floor(SHARED[target] / (shared + 1024))) * warps / 4
    end
    local by_registers = math.min(8, math.floor(512 / (math.ceil(registers / 8) * 8)))
    local blocks = math.floor(SHARED[target] / math.max(shared, 1))
    return math.min(by_registers, blocks * warps / 4)
end

local function is_backward(defines) return defines:find('ATTN_BACKWARD=1', 1, true) end
local function entry_of(defines)
    return is_backward(defines) and 'attn_bwd.hip' or 'attn_fwd.hip'
end

local nvdisasm = os.getenv 'NVDISASM' or has 'nvdisasm' and 'nvdisasm' or
    select(2, run 'echo "$(dirname "$(readlink -f "$(command -v nvcc)")")/nvdisasm"'):match '%S+'
nvdisasm = has(nvdisasm) and nvdisasm or nil

local function compile_sm(target, defines)
    local ok, out = run('timeout 300 ' .. SM_COMMAND[of_sm] .. ' -Ihip_kernels -I%s %s', folder,
        entry_of(defines), target, folder, defines)
    local spilled = out:match '(%d+) bytes spill stores'
    local read, code
    assert(nvdisasm or not options.update, '--update wants nvdisasm')
    if ok and nvdisasm and not is_backward(defines) then
        read, code = run('%s -c %s/k.cubin', nvdisasm, folder)
        assert(read, code)
    end
    return ok and spilled and {
        registers = tonumber(out:match 'Used (%d+) registers'),
        spilled = tonumber(spilled) / 4,
        scratch = tonumber(out:match '(%d+) bytes stack frame'),
        loop = code and kernel_loop.sm(code) or nil,
    }, out
end

local function compile_gfx(target, defines)
    local ok, out = run('clang-%s -x hip -std=c++17 --offload-device-only ' ..
        '--no-gpu-bundle-output --offload-arch=%s -nogpuinc -nogpulib -mcode-object-version=5 ' ..
        '-O3 -ffp-contract=off ' ..
        '-Ihip_kernels -I%s %s hip_kernels/%s -o %s/k.o', clang, target, folder, defines,
        entry_of(defines), folder)
    if not ok then return nil, out end
    local _, notes = run('llvm-readelf-%s --notes %s/k.o', clang, folder)
    local function note(name) return tonumber(notes:match('%.' .. name .. ': +(%d+)')) end
    local _, code = run('llvm-objdump-%s -d %s/k.o', clang, folder)
    return {
        registers = note 'vgpr_count',
        spilled = note 'vgpr_spill_count',
        scalar = note 'sgpr_spill_count',
        scratch = note 'private_segment_fixed_size',
        loop = not is_backward(defines) and kernel_loop.gfx(code, target, clang, folder) or nil,
    }
end

-- By the host's compiler, as an emulated kernel would have it.
local function shared_bytes(target, defines)
    local ok, out = run('cd %s/host && cc -std=gnu11 -w -DATTN_EMU=%s %s -I.. -I. shared.c ' ..
        '-o shared && ./shared', folder, EMULATED[target], defines)
    assert(ok, out)
    return tonumber(out)
end
assert(run('cp -r hip_kernels %s/host && cp lib/emu/isa/*.h %s/host/isa/', folder, folder))
do
    local file = assert(io.open(folder .. '/host/shared.c', 'w'))
    file:write('int printf(const char *, ...);\n#include "target.h"\n#include "core/params.h"\n',
        '#include "core/tile.h"\nint main(void) { printf("%d", (int)ATTN_SHARED_BYTES); }\n')
    file:close()
end

-- Of forward, counted with the first tile; features and a variant change no address.
local counted = {}
local function conflicts(target, plain, schedule)
    local name = target .. ' ' .. plain .. ' ' .. schedule
    if not counted[name] then
        local ok, out = run('ATTN_SCHEDULE=%s %s/kernel_conflicts %s %s', schedule, folder, target,
            plain)
        assert(ok, out)
        counted[name] = tonumber(out)
    end
    return counted[name]
end

-- With the tile that is `smaller` times smaller than the first; nil: there is none, or the reason.
local function kernel_of(target, line, smaller)
    local plain, text = line:match '^([^"]*)(.*)$'
    local type_, d, dv, rows, features = plain:match '^(%S+) (%d+) (%d+) (%d+) ?(.*)$'
    text = text:gsub('"', "'")
    local ok, job = run('%s/kernel_job %s %s %s %s %s %d %s/variant.h %s %s', folder, target, type_,
        d, dv, rows, smaller, folder, features, text)
    local warps, keys, defines = job:match '^(%d+) (%d+) (.-)\n$'
    if not ok or not warps then return nil, job end
    local result, out = (SM[target] and compile_sm or compile_gfx)(target, defines)
    if not result then return nil, out end
    result.keys = tonumber(keys)
    result.shared = shared_bytes(target, defines)
    result.conflicts = not is_backward(defines) and
        conflicts(target, plain:match '^%S+ %d+ %d+ %d+',
            defines:find 'ATTN_PRODUCER' and 'producer' or 'multistage') or nil
    result.waves = waves(target, tonumber(warps), result.registers, result.shared)
    result.matrix = result.loop and result.loop.matrix
    result.model = result.loop and result.loop.one_wave
    return result
end

local function kernel(target, line)
    local best, out = kernel_of(target, line, 0)
    local smaller = 1
    while best and best.scratch > (line:find(' fused', 1, true) and FEW or 0) do
        local other, why = kernel_of(target, line, smaller)
        if not other then return why == '' and best or nil, why end
        if other.scratch < best.scratch then best = other end
        smaller = smaller + 1
    end
    return best, out
end

-- -- Every tile that a plan may come to, by the host's compiler -----------------------------------

local PASSES = {'', 'dq', 'dkdv', 'fused', 'multistage'}
local function tiles_of(target, jobs)
    for _, type_ in ipairs {'f16', 'f32'} do
        for _, d in ipairs {32, 64, 96, 128, 192, 256} do
            for _, pass in ipairs(PASSES) do
                local smaller, ok, job, defines = 0
                repeat
                    ok, job = run('%s/kernel_job %s %s %d %d 4096 %d %s/none %s', folder, target,
                        type_, d, d, smaller, folder, pass)
                    defines = job:match '^%d+ %d+ (.-)\n$'
                    assert(ok or job == '', job)
                    jobs[#jobs + 1] = ok and defines and ('-DATTN_EMU=%s %s %s'):format(
                        EMULATED[target], defines, entry_of(defines)) or nil
                    smaller = smaller + 1
                until not ok or not defines
            end
        end
    end
end

local function check_tiles()
    local jobs = {}
    for _, target in ipairs(TARGETS) do tiles_of(target, jobs) end
    local file = assert(io.open(folder .. '/tiles', 'w'))
    file:write(table.concat(jobs, '\n'), '\n')
    file:close()
    local _, out = run('cd %s/host && xargs -P "$(nproc)" -I{} sh -c ' ..
        '"cc -std=c11 -pedantic-errors -fsyntax-only -I.. -I. -x c {} 2>&1 | grep -B 2 error" ' ..
        '< %s/tiles', folder, folder)
    return #jobs > 0 and out == '', #jobs, out
end

-- -- All ------------------------------------------------------------------------------------------

local function figures(r)
    local text = {}
    for _, name in ipairs(FIGURES) do
        if r[name] then text[#text + 1] = ('%s %g'):format(name, r[name]) end
    end
    return table.concat(text, ' ')
end

-- What is worse than the budget; figures of another compiler than the budget's are not compared,
-- but for what must be 0. A figure that only one of the two has is as bad; without nvdisasm, which
-- is said at the end, an sm_ target has no share of matrix products.
local function worse(name, r, compiler)
    local b, found = budget[name], {}
    if not b then return {'not in ' .. BUDGET} end
    for _, figure in ipairs(FIGURES) do
        local have, may = r[figure], b[figure]
        local unread = figure == 'matrix' and compiler == of_sm and not nvdisasm
        if (have == nil) ~= (may == nil) and not unread then
            found[#found + 1] = ('%s is missing %s'):format(figure,
                have and 'in ' .. BUDGET or 'here')
        end
        local same = compiler == b.compiler or figure == 'spilled' or figure == 'scratch' or
            figure == 'conflicts'
        if have and may and same and
            (MAY_NOT_FALL[figure] and have < may or not MAY_NOT_FALL[figure] and have > may) then
            found[#found + 1] = ('%s %d, the budget is %d'):format(figure, have, may)
        end
    end
    return found
end

local function version_of(compiler)
    local of_nvrtc = folder .. '/kernel_nvrtc'
    local _, out = run(compiler == 'nvrtc' and of_nvrtc or compiler .. ' --version')
    return out:match '%f[%w]V(%d[%d.]+)' or out:match 'version (%d[%d.]+)' or 'unknown'
end

-- Figures change with a compiler's version, so a line that fails can have that reason alone.
local function say_version(compiler)
    local now, then_ = version_of(compiler), versions[compiler]
    if options.update then
        versions[compiler] = now
    elseif now ~= then_ then
        print(('# %s is version %s; that of %s is %s'):format(compiler, now, BUDGET,
            then_ or 'not told'))
    end
end

local number, failed = 0, 0
local told = {}
if options.only == '' then
    local ok, count, out = check_tiles()
    number, failed = 1, ok and 0 or 1
    print(('%s 1 - %d tiles compile'):format(ok and 'ok' or 'not ok', count))
    if not ok then print('# ' .. out:sub(1, 2000):gsub('\n', '\n# ')) end
end
for _, target in ipairs(TARGETS) do
    local compiler = clang and 'clang-' .. clang
    if SM[target] then compiler = of_sm end
    if compiler and not told[compiler] then
        say_version(compiler)
        told[compiler] = true
    end
    local before = number
    for _, line in ipairs(list) do
        local name = target .. ' ' .. line
        local has_schedule = target == 'sm_90a' or not line:find ' multistage'
        if has_schedule and name:find(options.only, 1, true) then
            number = number + 1
            if not compiler then
                print(('ok %d - %s # skip no %s'):format(number, name,
                    SM[target] and 'NVRTC' or 'clang'))
            else
                local r, out = kernel(target, line)
                local none = not r and out == '' -- the chip has no such kernel
                local bad = r and not options.update and worse(name, r, compiler) or {}
                failed = failed + ((not r and not none or #bad > 0) and 1 or 0)
                print(('%s %d - %s: %s'):format((r or none) and #bad == 0 and 'ok' or 'not ok',
                    number, name,
                    r and ('%s%s%s'):format(figures(r),
                        r.scalar and (', scalar %d'):format(r.scalar) or '',
                        r.loop and ', ' .. r.loop.text or '') or none and 'none'
                        or 'does not compile'))
                for _, why in ipairs(r and bad or {out}) do
                    print('# ' .. why:sub(1, 2000):gsub('\n', '\n# '))
                end
                if r and options.update then
                    budget[name] = {text = figures(r) .. ' by ' .. compiler}
                end
            end
            io.stdout:flush()
        end
    end
    local asked = number > before
    if asked and not compiler then
        print('skipped: no ' .. (SM[target] and 'NVRTC' or 'clang'))
    elseif asked and SM[target] and not nvdisasm then
        print('skipped: no nvdisasm, the share of matrix products of ' .. target)
    end
end
print('1..' .. number)
if number == 0 then
    print('# no kernel has this in its name: ' .. options.only)
    failed = 1
end

if options.update then
    local names = {}
    for name in pairs(budget) do names[#names + 1] = name end
    table.sort(names)
    local file = assert(io.open(BUDGET, 'w'))
    file:write('# What the kernels of tools/kernels.txt may take, at most; of waves, matrix and\n',
        '# model, at least.\n# tools/kernels.lua --long --update writes it.\n')
    local of = {} -- the lines' compilers
    for _, name in ipairs(names) do of[budget[name].text:match 'by (%S+)'] = true end
    for _, compiler in ipairs {'clang-19', 'clang-22', 'nvcc', 'nvrtc'} do
        if of[compiler] then
            file:write('# ', compiler, ' is version ', versions[compiler], '\n')
        end
    end
    for _, name in ipairs(names) do file:write(name, ': ', budget[name].text, '\n') end
    file:close()
end
run('rm -rf %s', folder)
os.exit(failed == 0 and 0 or 1)
